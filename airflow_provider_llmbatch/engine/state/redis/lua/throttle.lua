-- Let nobody on this account and model take for a while, and lower the factor of its rates.
--
-- KEYS  1 throttle · 2… windows
-- ARGV  1 pause, 2 window and 3 slack in microseconds · 4 steepness, 5 drop and 6 floor of the factor ·
--       7… capacities of the windows
-- Returns the new factor in millionths, as a string. See arithmetic.lowered.

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local drop, floor = tonumber(ARGV[5]), tonumber(ARGV[6])
local saved = redis.call('HMGET', KEYS[1], 'until', 'factor', 'ceiling', 'at')
local before, low, ceiling, at = tonumber(saved[1] or 0), saved[2], saved[3], saved[4]

local function used()
  local fullest = 0
  for index = 2, #KEYS do
    fullest = math.max(fullest, (redis.call('HGET', KEYS[index], 'u') or 0) / ARGV[index + 5])
  end
  return fullest
end

-- Calls that were open together are refused together, and what was granted before may arrive up to the slack
-- later: that is one "no", not many.
if not saved[1] or (before <= now and now - at >= tonumber(ARGV[3])) then
  local factor = saved[1] and recovered(low, ceiling, at, now, ARGV[2], ARGV[4]) or 1
  local refused = math.max(floor, math.min(factor, math.max(used(), factor * drop)))
  low, ceiling, at = math.max(floor, refused * drop) * 1000000, refused * 1000000, now
end
redis.call('HSET', KEYS[1],
  'until', string.format('%.0f', math.max(before, now + tonumber(ARGV[1]))),
  'factor', string.format('%.0f', low),
  'ceiling', string.format('%.0f', ceiling),
  'at', string.format('%.0f', at))
redis.call('PEXPIRE', KEYS[1], math.ceil(tonumber(ARGV[2]) / 100) + math.ceil(tonumber(ARGV[1]) / 1000))
return string.format('%.0f', low)
