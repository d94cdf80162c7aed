-- How full meters are, and the factor that throttling leaves.
--
-- KEYS  1 throttle · 2… meters
-- ARGV  1 recovery in microseconds · then, for each meter, kept and quantum in microseconds (0: a budget)
-- Returns the factor in millionths, then what is used of each meter, as strings.

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local factor = 1000000
local saved = redis.call('HMGET', KEYS[1], 'factor', 'at')
if saved[1] then
  factor = math.min(1000000, tonumber(saved[1]) + math.max(0, now - saved[2]) / ARGV[1] * 1000000)
end
local answer = {string.format('%.0f', factor)}
for index = 2, #KEYS do
  local kept, quantum = tonumber(ARGV[2 * index - 2]), tonumber(ARGV[2 * index - 1])
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
