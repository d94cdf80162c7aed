-- Renew, answer or release a claim; only its holder can.
--
-- KEYS  1 bucket
-- ARGV  1 question · 2 holder · 3 renew, answer or release · 4 milliseconds · 5 pointer
-- Returns 1 when it was done.

local clock = redis.call('TIME')
local now = math.floor((clock[1] * 1000000 + clock[2]) / 1000)
local value = redis.call('HGET', KEYS[1], ARGV[1])
if not value then return 0 end
local kind, ends, rest = string.match(value, '^(%a)(%d+) (.*)$')
local holder = kind == 'h' and string.match(rest, '^(.*)#%d+$')
if holder ~= ARGV[2] then return 0 end
local ends_now = string.format('%.0f ', now + ARGV[4])
if ARGV[3] == 'release' then
  redis.call('HDEL', KEYS[1], ARGV[1])
elseif ARGV[3] == 'answer' then
  redis.call('HSET', KEYS[1], ARGV[1], 'a' .. ends_now .. ARGV[5])
else
  redis.call('HSET', KEYS[1], ARGV[1], 'h' .. ends_now .. rest)
end
return 1
