-- Note that the server runs anew, with its data: each meter is then debited once for what may be missing.
--
-- KEYS  1 epoch
-- ARGV  1 the server's run id
-- Returns the epoch's id, or an empty string when there is none.

local saved = redis.call('HMGET', KEYS[1], 'id', 'server')
if not saved[1] then return '' end
if saved[2] and saved[2] ~= ARGV[1] then redis.call('HINCRBY', KEYS[1], 'run', 1) end
redis.call('HSET', KEYS[1], 'server', ARGV[1])
return saved[1]
