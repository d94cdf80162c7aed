-- Raise budgets to what the ledger says was spent; a larger total knows of calls that are still open.
--
-- KEYS  budgets
-- ARGV  amounts, in the same order
for index, key in ipairs(KEYS) do
  local used = tonumber(redis.call('HGET', key, 'u') or 0)
  redis.call('HSET', key, 'u', string.format('%.0f', math.max(used, tonumber(ARGV[index]))))
  redis.call('PEXPIRE', key, 90 * 86400000)
end
return 'ok'
