-- What stops a task: a note that it has not heeded yet, or has heeded on this occasion. One that it has
-- heeded before it was cleared is lifted.
--
-- KEYS  1 stop
-- ARGV  1 owner · 2 occasion
-- Returns by · why · at, each nil when nothing stops it.

local known = 'heeded:' .. ARGV[1]
local found = redis.call('HMGET', KEYS[1], 'by', 'why', 'at', known)
if not found[1] then return {false, false, false} end
if found[4] and found[4] ~= ARGV[2] then
  redis.call('DEL', KEYS[1])
  return {false, false, false}
end
redis.call('HSET', KEYS[1], known, ARGV[2])
return {found[1], found[2], found[3]}
