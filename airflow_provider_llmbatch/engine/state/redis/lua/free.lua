-- Free the leases of an owner's older tries. What they reserved stays counted: it may have been used.
--
-- KEYS  1 leases · 2 the owner's lease data
-- ARGV  1 the new fence
-- Returns how many were freed, as a string.

local freed = 0
local data = redis.call('HGETALL', KEYS[2])
for place = 1, #data, 2 do
  if cjson.decode(data[place + 1])[5] < tonumber(ARGV[1]) then
    freed = freed + redis.call('ZREM', KEYS[1], data[place])
  end
end
return string.format('%.0f', freed)
