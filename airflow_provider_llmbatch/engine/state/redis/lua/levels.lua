-- How full meters are, and the factor that throttling leaves.
--
-- KEYS  1 throttle · 2… meters
-- ARGV  1 window in microseconds · 2 steepness of the factor · then, for each meter, kept and quantum in
--       microseconds (0: a budget)
-- Returns the factor in millionths, then what is used of each meter, as strings.

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local factor = 1
local saved = redis.call('HMGET', KEYS[1], 'factor', 'ceiling', 'at')
if saved[1] then factor = recovered(saved[1], saved[2], saved[3], now, ARGV[1], ARGV[2]) end
local answer = {string.format('%.0f', factor * 1000000)}
for index = 2, #KEYS do
  local kept, quantum = tonumber(ARGV[2 * index - 1]), tonumber(ARGV[2 * index])
  local used = 0
  if quantum == 0 then
    used = tonumber(redis.call('HGET', KEYS[index], 'u') or 0)
  else
    local first = math.floor((now - kept) / quantum) + 1
    local fields = redis.call('HGETALL', KEYS[index])
    for place = 1, #fields, 2 do
      local number = tonumber(fields[place])
      if number and number >= first then used = used + fields[place + 1] end
    end
  end
  answer[index] = string.format('%.0f', used)
end
return answer
