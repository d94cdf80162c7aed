-- Free the leases of an owner's older tries. What they reserved stays counted: it may have been used.
--
-- KEYS  1 leases · 2 lease data
-- ARGV  1 owner
-- Returns how many were freed, as a string.

local freed = 0
local data = redis.call('HGETALL', KEYS[2])
for place = 1, #data, 2 do
  if cjson.decode(data[place + 1])[5] == ARGV[1] then
    redis.call('HDEL', KEYS[2], data[place])
    redis.call('ZREM', KEYS[1], data[place])
    freed = freed + 1
  end
end
return string.format('%.0f', freed)
