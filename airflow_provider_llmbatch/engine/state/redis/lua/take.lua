-- Settle what is done, then grant as many needs as fit, in order, in one step.
--
-- KEYS  1 epoch · 2 the owner's fence · 3 throttle · 4 leases · 5 the owner's lease data · 6 queue · 7 turns ·
--       8… meters, and then, for each of them, what calls that are open hold of it (budgets only) · the
--       gates, and after them the names of those that were heard of
-- ARGV  1 JSON: owner, fence, first (take of this try), waiter, priority, id, max_in_flight, lease_us, life_us,
--         renew (leases of this try), turn_us,
--         known_epoch, recent, server, throttle (name), window_us, steepness, forgotten, passed_us, least_us,
--         believed (windows), undo [[id, n]],
--         meters [{unit, cap, window, kept, quantum, burst, used, spread, told {limit, remaining}}],
--         gates [{name, failures, over, probe, trial, sticky, seen}], needs [[requests, tokens, micro_usd]], settled [[grant id, tokens, micro_usd, sent, late]]
-- Returns strings: verdict, now, granted, wait_us, waits_for, fence, epoch, closed
--   verdict   ok · stale · refused · lost (not the data that the caller knew: budgets have to be rebuilt)
--   waits_for index of a meter, or in_flight · throttle · turn · gate · ""
--   closed    JSON of the gate that is parked: [index, since, until (-1: a person's), why]; "" when none is
-- Times are microseconds of this server's clock; a level is in thousandths of a unit.

local ask = cjson.decode(ARGV[1])
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local METERS = 7

local function text(number)
  return string.format('%.0f', number)
end

-- Which life of the data this is. Made anew when it is missing; the caller says whether it knew one.
local epoch = redis.call('HMGET', KEYS[1], 'id', 'born', 'full', 'run')
if not epoch[1] then
  local lost = ask.known_epoch ~= '' or ask.recent == 1
  redis.call('HSET', KEYS[1], 'id', ask.id, 'born', text(now), 'full', lost and '1' or '0', 'run', '0',
    'server', ask.server)
  epoch = {ask.id, text(now), lost and '1' or '0', '0'}
elseif ask.known_epoch ~= '' and ask.known_epoch ~= epoch[1] and epoch[3] == '0' then
  -- Somebody started afresh before anybody knew that data were lost: from here on all windows are full.
  redis.call('HSET', KEYS[1], 'full', '1', 'born', text(now))
  for index, meter in ipairs(ask.meters) do
    if meter.window > 0 then redis.call('DEL', KEYS[METERS + index]) end
  end
  epoch[2], epoch[3] = text(now), '1'
end
local born, full, run = tonumber(epoch[2]), epoch[3] == '1', tonumber(epoch[4])

local until_us, factor = 0, 1
local throttle = redis.call('HMGET', KEYS[3], 'until', 'factor', 'ceiling', 'at')
if throttle[1] then
  until_us = tonumber(throttle[1])
  factor = recovered(throttle[2], throttle[3], throttle[4], now, ask.window_us, ask.steepness)
end

-- Meters -------------------------------------------------------------------------------------------

local gauges = {}

local function forget(gauge, key, first)
  if not gauge.oldest then return end
  if first - gauge.oldest > 1000 then
    redis.call('DEL', key)
    gauge.used, gauge.oldest, gauge.fresh = 0, nil, true
    return
  end
  while gauge.oldest and gauge.oldest < first do
    local amount = redis.call('HGET', key, text(gauge.oldest))
    if amount then
      gauge.used = gauge.used - amount
      redis.call('HDEL', key, text(gauge.oldest))
    end
    gauge.oldest = gauge.oldest + 1
    if gauge.used <= 0 and gauge.oldest < first then gauge.oldest = first end
  end
end

local function put(gauge, key, number, amount)
  local left = redis.call('HINCRBY', key, text(number), text(amount))
  gauge.used = gauge.used + amount
  if not gauge.oldest or number < gauge.oldest then gauge.oldest = number end
  return left
end

local function start_full(meter, gauge, key)
  -- What was granted before the data were lost is not known: the window counts as used up.
  local share = meter.spread
  local amount = math.ceil(meter.cap / share)
  for step = 0, share - 1 do
    put(gauge, key, math.floor(born / meter.quantum) - step, amount)
  end
  gauge.level = 0
end

-- What the service says the window holds, where that is less than configured, and until when to believe it.
local function heard(meter, limit, believed)
  if meter.told and meter.told[1] >= 0 then
    limit, believed = meter.told[1], now + ask.believed * meter.window
  end
  if not limit or tonumber(believed) <= now then return meter.cap, 0 end
  return math.min(meter.cap, tonumber(limit)), tonumber(believed)
end

-- No more is left than the service says: others have taken the rest.
local function correct(index)
  local told, gauge, meter = ask.meters[index].told, gauges[index], ask.meters[index]
  if not told or told[2] < 0 then return end
  gauge.level = math.min(gauge.level, told[2] * 1000)
  local missing = gauge.limit - told[2] - gauge.used
  if missing > 0 then put(gauge, KEYS[METERS + index], math.floor(now / meter.quantum), missing) end
end

local function load(index)
  local meter, key = ask.meters[index], KEYS[METERS + index]
  if meter.window == 0 then
    gauges[index] = {used = tonumber(redis.call('HGET', key, 'u') or 0)}
    return
  end
  local saved = redis.call('HMGET', key, 'l', 't', 'u', 'o', 'r', 'w', 'c', 'b')
  local limit, believed = heard(meter, saved[7], saved[8])
  local share = math.min(factor, limit / meter.cap)
  local rate = meter.cap / meter.kept * share * 1000
  local gauge = {rate = rate, burst = math.max(1000, rate * meter.burst), share = share}
  gauge.limit, gauge.believed = limit, believed
  -- While the head of the queue waits for more than the bucket holds, the bucket fills up to that.
  gauge.room = tonumber(saved[6] or 0)
  if saved[2] then
    gauge.level = tonumber(saved[1]) + math.max(0, now - tonumber(saved[2])) * rate
    gauge.level = math.min(gauge.level, math.max(gauge.burst, gauge.room))
    gauge.used, gauge.oldest, gauge.run = tonumber(saved[3]), tonumber(saved[4]), tonumber(saved[5])
  else
    gauge.level, gauge.used, gauge.run = gauge.burst, 0, run
    if full and born + meter.kept > now then start_full(meter, gauge, key) end
  end
  gauge.first = math.floor((now - meter.kept) / meter.quantum) + 1
  forget(gauge, key, gauge.first)
  if gauge.run < run then
    -- The server was restarted with its data: up to two seconds of grants may be missing from them.
    local debit = math.ceil(meter.cap / meter.kept * 2000000)
    put(gauge, key, math.floor(now / meter.quantum), debit)
    gauge.level, gauge.run = gauge.level - debit * 1000, run
  end
  gauges[index] = gauge
end

local function move(index, amount, at)
  local meter, gauge, key = ask.meters[index], gauges[index], KEYS[METERS + index]
  if meter.window == 0 then
    gauge.used = gauge.used + amount
    redis.call('HSET', key, 'u', text(gauge.used))
    redis.call('PEXPIRE', key, 90 * 86400000)
    return
  end
  local number = math.floor(at / meter.quantum)
  if number < gauge.first then return end
  put(gauge, key, number, amount)
  gauge.level = gauge.level - amount * 1000
end

local function window_wait(index, excess)
  local meter, gauge, key = ask.meters[index], gauges[index], KEYS[METERS + index]
  local number = gauge.oldest
  local last = math.floor(now / meter.quantum)
  while number and number <= last do
    local amount = redis.call('HGET', key, text(number))
    if amount then
      excess = excess - amount
      if excess <= 0 then return math.max(1, number * meter.quantum + meter.kept - now) end
    end
    number = number + 1
  end
  return meter.kept
end

-- Microseconds until an amount fits; 0 now, -1 never.
local function wait_for(index, amount)
  local meter, gauge = ask.meters[index], gauges[index]
  if meter.window == 0 then
    return gauge.used + amount <= meter.cap and 0 or -1
  end
  if amount > meter.cap then return -1 end
  local wait = 0
  local missing = math.min(amount * 1000, gauge.burst) - gauge.level
  if missing > 0 then wait = math.ceil(missing / gauge.rate) end
  local excess = gauge.used + amount - math.max(amount, math.floor(meter.cap * gauge.share))
  if excess > 0 then wait = math.max(wait, window_wait(index, excess)) end
  return wait
end

local function save(index)
  local meter, gauge, key = ask.meters[index], gauges[index], KEYS[METERS + index]
  if meter.window == 0 then return end
  redis.call('HSET', key, 'l', text(gauge.level), 't', text(now), 'u', text(gauge.used),
    'o', text(gauge.oldest or gauge.first), 'r', text(gauge.run), 'w', text(gauge.room),
    'c', text(gauge.limit), 'b', text(gauge.believed))
  redis.call('PEXPIRE', key, text(math.ceil(meter.kept / 500)))
end

for index = 1, #ask.meters do load(index) end

-- Leases -------------------------------------------------------------------------------------------

redis.call('ZREMRANGEBYSCORE', KEYS[4], '-inf', text(now))

local function open_key(index) return KEYS[METERS + #ask.meters + index] end

local function let_go(id, reserved)
  redis.call('ZREM', KEYS[4], id)
  for index, meter in ipairs(ask.meters) do
    if meter.window == 0 then redis.call('ZREM', open_key(index), id .. '|' .. reserved[meter.unit]) end
  end
end

if ask.first == 1 then
  -- What older tries had open is not waited for any more. It stays counted: it may have been used.
  local data = redis.call('HGETALL', KEYS[5])
  for place = 1, #data, 2 do
    local reserved = cjson.decode(data[place + 1])
    if reserved[5] < ask.fence then let_go(data[place], reserved) end
  end
end

-- Each lease is settled once, however often the caller says so: its data are gone afterwards.
local function settle(id, tokens, micro_usd, sent, late)
  local data = redis.call('HGET', KEYS[5], id)
  if not data then return end
  local reserved = cjson.decode(data)
  local at = tonumber(reserved[4])
  if late == 1 then
    for index, meter in ipairs(ask.meters) do
      if meter.window > 0 then move(index, reserved[meter.unit], now) end
    end
    return
  end
  redis.call('HDEL', KEYS[5], id)
  let_go(id, reserved)
  local actual = {reserved[1], tokens, micro_usd}
  for index, meter in ipairs(ask.meters) do
    local was = reserved[meter.unit]
    local change = actual[meter.unit] >= 0 and actual[meter.unit] - was or 0
    if sent == 0 then
      move(index, -was, at)
    elseif meter.unit == 3 or meter.used == 1 then
      if change ~= 0 then move(index, change, at) end
    elseif change > 0 then
      move(index, change, now)
    end
  end
end

for _, one in ipairs(ask.settled) do settle(one[1], one[2], one[3], one[4], one[5]) end
for index = 1, #ask.meters do correct(index) end

local function gate_key(index) return KEYS[METERS + 2 * #ask.meters + index] end

local gate_records = {}
for index, gate in ipairs(ask.gates) do
  gate_records[index] = load_gate(gate_key(index))
  if gate.seen then hear_gate(gate_key(index), gate_records[index], gate, gate.seen, now) end
end
for _, one in ipairs(ask.undo) do
  -- It may not even have arrived yet; then it must not be carried out any more.
  redis.call('HSET', KEYS[7], ':undone:' .. one[1], '1')
  for number = 1, one[2] do settle(one[1] .. ':' .. number, -1, -1, 0, 0) end
end

local closed = ''

local function answer(verdict, granted, wait, waits_for)
  for index = 1, #ask.meters do save(index) end
  return {verdict, text(now), text(granted), text(wait), tostring(waits_for),
    text(tonumber(redis.call('HGET', KEYS[2], 'n') or 0)), epoch[1], closed}
end

-- What everybody has had that stands no further back than newcomers do says nothing.
local function forget_what_was_had(served)
  local fields = redis.call('HGETALL', KEYS[7])
  for place = 1, #fields, 2 do
    if string.sub(fields[place], 1, 5) == ':had:' and tonumber(fields[place + 1]) <= served then
      redis.call('HDEL', KEYS[7], fields[place])
    end
  end
end

local function leave_queue()
  redis.call('ZREM', KEYS[6], ask.waiter)
  redis.call('HDEL', KEYS[7], ask.waiter)
end

if tonumber(redis.call('HGET', KEYS[2], 'n') or 0) > ask.fence then
  leave_queue()
  return answer('stale', 0, 0, '')
end
if ask.known_epoch ~= '' and ask.known_epoch ~= epoch[1] then
  leave_queue()
  return answer('lost', 0, 0, '')
end
if ask.renew == 1 then
  -- A sign of life: what this try has open stays open, but not for longer than a call can be.
  local data = redis.call('HGETALL', KEYS[5])
  for place = 1, #data, 2 do
    local reserved = cjson.decode(data[place + 1])
    local until_us = math.min(now + ask.life_us, tonumber(reserved[4]) + ask.lease_us)
    if reserved[5] == ask.fence and until_us > now then
      redis.call('ZADD', KEYS[4], text(until_us), data[place])
    end
  end
end
if #ask.needs == 0 then
  leave_queue()
  return answer('ok', 0, 0, '')
end
if redis.call('HEXISTS', KEYS[7], ':undone:' .. ask.id) == 1 then return answer('ok', 0, 0, 'turn') end
if until_us > now then return answer('ok', 0, until_us - now, 'throttle') end

-- Gates --------------------------------------------------------------------------------------------

local alone = false
for index, gate in ipairs(ask.gates) do
  local record = gate_records[index]
  local wait = gate_wait(record, gate, now)
  if record.since and wait > 0 then
    closed = cjson.encode({index, text(record.since), record.sticky and '-1' or text(record.until_us), record.why})
  end
  if wait > 0 then
    leave_queue()
    return answer('ok', 0, wait, 'gate')
  end
  alone = alone or is_trial(record, gate, now)
end
local asked = #ask.needs
if alone then ask.needs = {ask.needs[1]} end

-- Turns --------------------------------------------------------------------------------------------

-- The line is in the order of what each has had, in microseconds of the rate: see arithmetic.place.
local PRIORITY = 1000000000000000
local line = redis.call('HMGET', KEYS[7], ':served', ':served-at', ':had:' .. ask.waiter)
local served, served_at, had = tonumber(line[1] or 0), tonumber(line[2] or now), tonumber(line[3] or 0)
if ask.first == 1 and line[1] then forget_what_was_had(served) end
local mine = redis.call('ZSCORE', KEYS[6], ask.waiter)
mine = mine and mine - ask.priority * PRIORITY
local others = redis.call('ZCARD', KEYS[6]) - (mine and 1 or 0)

local function line_up(anew)
  local place = math.min(math.max(had, served), served + ask.passed_us / math.max(1, others))
  -- Who is no longer alone is not passed for as long.
  if anew or not mine or place < mine then
    redis.call('ZADD', KEYS[6], text(ask.priority * PRIORITY + place), ask.waiter)
  end
  -- Everybody asks again at least once a second; whoever does not within two has lost its turn.
  redis.call('HSET', KEYS[7], ask.waiter, text(now + 2000000))
  redis.call('PEXPIRE', KEYS[6], 600000)
  redis.call('PEXPIRE', KEYS[7], 600000)
end

local function head()
  while true do
    local first = redis.call('ZRANGE', KEYS[6], 0, 0)[1]
    if not first or first == ask.waiter then return first end
    local deadline = tonumber(redis.call('HGET', KEYS[7], first) or 0)
    if deadline >= now then return first end
    redis.call('ZREM', KEYS[6], first)
    redis.call('HDEL', KEYS[7], first)
  end
end

local first = head()
if first and first ~= ask.waiter then
  line_up(false)
  local place = redis.call('ZRANK', KEYS[6], ask.waiter)
  local wait = math.min(250000, math.max(10000, 20000 * place))
  return answer('ok', 0, wait, 'turn')
end

-- Grants -------------------------------------------------------------------------------------------

local open = redis.call('ZCARD', KEYS[4])
local taken = {0, 0, 0}

-- Whether a spent budget could have room once the calls that are open are settled.
local function may_come_free(index, amount)
  if ask.meters[index].window > 0 then return false end
  redis.call('ZREMRANGEBYSCORE', open_key(index), '-inf', text(now))
  local held = 0
  for _, member in ipairs(redis.call('ZRANGE', open_key(index), 0, -1)) do
    held = held + tonumber(string.match(member, '|(%d+)$'))
  end
  return gauges[index].used - held + amount <= ask.meters[index].cap
end

-- A turn ends with a quarter second of the rate when others wait.
local function turn_is_over(need)
  if others == 0 then return false end
  for index, meter in ipairs(ask.meters) do
    if meter.window > 0 then
      local so_far = taken[meter.unit]
      if so_far > 0 and (so_far + need[meter.unit]) * 1000 > gauges[index].rate * ask.turn_us then
        return true
      end
    end
  end
  return false
end

local granted, wait, waits_for, refused = 0, 0, '', false
for number, need in ipairs(ask.needs) do
  if open + granted >= ask.max_in_flight then
    wait, waits_for = 50000, 'in_flight'
    break
  end
  if turn_is_over(need) then
    wait, waits_for = 1000, 'turn'
    break
  end
  local longest, binding = 0, ''
  for index, meter in ipairs(ask.meters) do
    local this = wait_for(index, need[meter.unit])
    if this < 0 then
      refused = not may_come_free(index, need[meter.unit])
      longest, binding = refused and 0 or 50000, index
      break
    end
    if this > longest then longest, binding = this, index end
  end
  if refused or longest > 0 then
    wait, waits_for = longest, binding
    break
  end
  for index, meter in ipairs(ask.meters) do
    move(index, need[meter.unit], now)
    taken[meter.unit] = taken[meter.unit] + need[meter.unit]
  end
  granted = number
  local id = ask.id .. ':' .. number
  redis.call('ZADD', KEYS[4], text(now + math.min(ask.life_us, ask.lease_us)), id)
  redis.call('HSET', KEYS[5], id, cjson.encode({need[1], need[2], need[3], text(now), ask.fence}))
  for index, meter in ipairs(ask.meters) do
    if meter.window == 0 then
      redis.call('ZADD', open_key(index), text(now + ask.lease_us), id .. '|' .. need[meter.unit])
      redis.call('PEXPIRE', open_key(index), text(math.ceil(ask.lease_us / 500)))
    end
  end
end
if granted > 0 then
  for index, gate in ipairs(ask.gates) do begin_trial(gate_key(index), gate_records[index], gate, now) end
  redis.call('PEXPIRE', KEYS[4], text(math.ceil(ask.lease_us / 500)))
  redis.call('PEXPIRE', KEYS[5], text(math.ceil(ask.lease_us / 500)))
  -- A new try frees what the older ones had open, and so has to find it.
  redis.call('HSETNX', KEYS[2], ':' .. ask.throttle, '1')
end

-- Note what was taken: see arithmetic.newcomers_place.
local function count()
  local took = ask.least_us
  for index, meter in ipairs(ask.meters) do
    if meter.window > 0 then took = math.max(took, taken[meter.unit] * 1000 / gauges[index].rate) end
  end
  had = math.max(had, served)
  served = math.min(had, served + ask.forgotten * math.max(0, now - served_at))
  had = had + took
  redis.call('HSET', KEYS[7], ':served', text(served), ':served-at', text(now), ':had:' .. ask.waiter, text(had))
  redis.call('PEXPIRE', KEYS[7], 600000)
end

if granted > 0 then count() end

local next_need = ask.needs[granted + 1]
for index, meter in ipairs(ask.meters) do
  if meter.window > 0 then
    gauges[index].room = next_need and not refused and next_need[meter.unit] * 1000 or 0
  end
end

-- Calls that are open hold up one model; others in the queue may have room.
if granted == #ask.needs or refused or waits_for == 'in_flight' then
  leave_queue()
else
  line_up(granted > 0)
  if granted > 0 and others > 0 then wait, waits_for = 10000, 'turn' end
end
if granted < asked and wait == 0 and not refused then wait, waits_for = ASK_AGAIN, 'gate' end
return answer(refused and 'refused' or 'ok', granted, wait, waits_for)
