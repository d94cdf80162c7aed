-- Let nobody on this account and model take for a while, and lower the factor of its rates.
--
-- KEYS  1 throttle
-- ARGV  1 microseconds · 2 recovery in microseconds · 3 drop and 4 floor of the factor, in millionths
-- Returns the new factor in millionths, as a string.

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local saved = redis.call('HMGET', KEYS[1], 'until', 'factor', 'at')
local before, factor = 0, 1000000
if saved[1] then
  before = tonumber(saved[1])
  factor = math.min(1000000, tonumber(saved[2]) + (now - tonumber(saved[3])) / tonumber(ARGV[2]) * 1000000)
end
-- Calls that were open together are throttled together: that is one "no", not many.
if before <= now then factor = math.max(tonumber(ARGV[4]), factor * tonumber(ARGV[3]) / 1000000) end
redis.call('HSET', KEYS[1],
  'until', string.format('%.0f', math.max(before, now + tonumber(ARGV[1]))),
  'factor', string.format('%.0f', factor),
  'at', string.format('%.0f', now))
redis.call('PEXPIRE', KEYS[1], math.ceil(tonumber(ARGV[2]) / 1000) + math.ceil(tonumber(ARGV[1]) / 1000))
return string.format('%.0f', factor)
