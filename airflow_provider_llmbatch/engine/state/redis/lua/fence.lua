-- Start a new try: the highest number so far plus one. Its first take frees the older tries' leases.
--
-- KEYS  1 fences
-- ARGV  1 owner · 2 lowest number
-- Returns the number as a string.

local fence = math.max(tonumber(redis.call('HGET', KEYS[1], ARGV[1]) or 0) + 1, tonumber(ARGV[2]))
redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f', fence))
redis.call('PEXPIRE', KEYS[1], 90 * 86400000)
return string.format('%.0f', fence)
