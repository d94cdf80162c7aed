-- Claim a question, or learn who holds it or where its answer lies.
--
-- Questions lie in shared hashes, of which small ones take little memory: 16 bytes of name and a short
-- value each. A field's own end stands in its value; the hash as a whole lives as long as its longest.
--
-- KEYS  1 bucket
-- ARGV  1 question · 2 holder · 3 fence · 4 held, and 5 kept, in milliseconds
-- Returns strings: won "" · held <ms> · answered <pointer>

local clock = redis.call('TIME')
local now = math.floor((clock[1] * 1000000 + clock[2]) / 1000)
local value = redis.call('HGET', KEYS[1], ARGV[1])
if value then
  local kind, ends, rest = string.match(value, '^(%a)(%d+) (.*)$')
  if tonumber(ends) > now then
    if kind == 'a' then return {'answered', rest} end
    local holder, fence = string.match(rest, '^(.*)#(%d+)$')
    if holder ~= ARGV[2] or tonumber(fence) > tonumber(ARGV[3]) then
      return {'held', string.format('%.0f', ends - now)}
    end
  end
end
redis.call('HSET', KEYS[1], ARGV[1], string.format('h%.0f ', now + ARGV[4]) .. ARGV[2] .. '#' .. ARGV[3])
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[5]) then redis.call('PEXPIRE', KEYS[1], ARGV[5]) end
return {'won', ''}
