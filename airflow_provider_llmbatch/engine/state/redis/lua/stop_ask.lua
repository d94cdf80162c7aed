-- Leave the note that a run shall stop; what was there before is gone.
--
-- KEYS  1 stop
-- ARGV  1 by · 2 why · 3 seconds to keep it

redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'by', ARGV[1], 'why', ARGV[2], 'at', redis.call('TIME')[1])
redis.call('EXPIRE', KEYS[1], ARGV[3])
return 1
