-- Start a new try: the highest number so far plus one.
--
-- KEYS  1 the owner's fence: the number in field "n", and the throttles that it has taken under
-- ARGV  1 lowest number
-- Returns the number as a string, and the names of those throttles.

local saved = redis.call('HGETALL', KEYS[1])
local fence, throttles = tonumber(ARGV[1]), {}
for place = 1, #saved, 2 do
  if saved[place] == 'n' then
    fence = math.max(fence, saved[place + 1] + 1)
  else
    throttles[#throttles + 1] = string.sub(saved[place], 2)
  end
end
redis.call('HSET', KEYS[1], 'n', string.format('%.0f', fence))
redis.call('PEXPIRE', KEYS[1], 90 * 86400000)
return {string.format('%.0f', fence), unpack(throttles)}
