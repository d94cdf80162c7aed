-- Look where a question's answer lies, and claim nothing.
--
-- KEYS  1 bucket
-- ARGV  1 question
-- Returns the pointer, or an empty string.

local clock = redis.call('TIME')
local now = math.floor((clock[1] * 1000000 + clock[2]) / 1000)
local value = redis.call('HGET', KEYS[1], ARGV[1])
if not value then return '' end
local ends, pointer = string.match(value, '^a(%d+) (.*)$')
return ends and tonumber(ends) > now and pointer or ''
