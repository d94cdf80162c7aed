-- Park a gate, so that nobody passes but one call at a time to try it; or open it.
--
-- KEYS  1 gate · 2 names of the gates that were heard of
-- ARGV  1 JSON of the gate; null opens it · 2 why
-- Returns since and until when, as strings; "" when it is open.

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local gate = cjson.decode(ARGV[1])
local record = load_gate(KEYS[1])
if type(gate) == 'table' then
  park_gate(KEYS[1], record, gate, ARGV[2], now)
else
  open_gate(KEYS[1], record)
  return {'', ''}
end
return {as_text(record.since), as_text(record.until_us)}
