-- Gates: credentials and endpoints that are closed, for everybody, while they fail. See health.py.
--
-- A gate is a hash: since, until and why (parked), sticky, good (latest answer), trial (until when one call
-- has it alone), first and failed (failures in a row; the items' names, each with a space behind it). A gate
-- in a request is {name, failures, over, probe, trial, sticky}; what was seen is {granted (-1: no answer),
-- [items], unused (-1: none)}. Times are microseconds. The last key of each script is the set of the gates that were heard of.

local GOOD_FOR, ASK_AGAIN, PERSON, KEPT = 300000000, 50000, 3600000000, 86400000

local function as_text(number)
  return string.format('%.0f', number)
end

local function list_gate(gate)
  redis.call('SADD', KEYS[#KEYS], gate.name)
  redis.call('PEXPIRE', KEYS[#KEYS], as_text(90 * KEPT))
end

local function load_gate(key)
  local saved = redis.call('HMGET', key, 'since', 'until', 'sticky', 'good', 'trial', 'first', 'failed', 'why')
  local record = {since = tonumber(saved[1]), until_us = tonumber(saved[2]), sticky = saved[3] == '1'}
  record.good, record.trial = tonumber(saved[4] or -GOOD_FOR), tonumber(saved[5] or -GOOD_FOR)
  record.first, record.failed, record.why = tonumber(saved[6]), saved[7] or '', saved[8] or ''
  return record
end

local function park_gate(key, record, gate, why, now)
  record.since, record.until_us = record.since or now, now + gate.probe
  record.sticky, record.why, record.first, record.failed = gate.sticky == 1, why, nil, ''
  redis.call('HDEL', key, 'first', 'failed')
  redis.call('HSET', key, 'since', as_text(record.since), 'until', as_text(record.until_us),
    'sticky', as_text(gate.sticky), 'why', why)
  redis.call('PEXPIRE', key, as_text(gate.sticky == 1 and 90 * KEPT or KEPT))
  list_gate(gate)
end

local function open_gate(key, record)
  if record.since or record.first then
    redis.call('HDEL', key, 'since', 'until', 'sticky', 'why', 'first', 'failed')
  end
  record.since, record.until_us, record.sticky, record.first, record.failed = nil, nil, false, nil, ''
end

local function count_failures(record, failed, most)
  local _, count = string.gsub(record.failed, ' ', '')
  for _, item in ipairs(failed) do
    if count < most and not string.find(' ' .. record.failed, ' ' .. item .. ' ', 1, true) then
      record.failed, count = record.failed .. item .. ' ', count + 1
    end
  end
  return count
end

local function hear_gate(key, record, gate, seen, now)
  if seen[1] >= 0 then
    -- Once a second is enough to know that it works.
    if now - record.good > 1000000 then
      redis.call('HSET', key, 'good', as_text(now))
      redis.call('PEXPIRE', key, as_text(record.sticky and 90 * KEPT or KEPT))
      list_gate(gate)
    end
    record.good = now
    if not record.since or (seen[1] >= record.since and not record.sticky) then open_gate(key, record) end
  end
  if seen[3] >= 0 and seen[3] >= (record.since or 0) and not record.sticky then
    -- Nobody has tried it after all.
    if record.until_us and record.until_us > now then
      record.until_us = now
      redis.call('HSET', key, 'until', as_text(now))
    end
    if record.trial > now then
      record.trial = -GOOD_FOR
      redis.call('HDEL', key, 'trial')
    end
  end
  if #seen[2] > 0 and record.trial > now then
    -- The call that had it alone is over, and says nothing about it.
    redis.call('HSET', key, 'trial', as_text(now))
    record.trial = now
  end
  if gate.failures == 0 or record.since or #seen[2] == 0 then return end
  record.first = record.first or now
  local count = count_failures(record, seen[2], gate.failures)
  if count >= gate.failures and now - record.first >= gate.over then
    park_gate(key, record, gate, as_text(count) .. ' items in a row failed', now)
    return
  end
  redis.call('HSET', key, 'first', as_text(record.first), 'failed', record.failed)
  redis.call('PEXPIRE', key, as_text(KEPT))
  list_gate(gate)
end

local function is_tried(record, gate, now)
  return gate.trial > 0 and now - record.good > GOOD_FOR
end

-- Microseconds until somebody may try to pass; 0 now.
local function gate_wait(record, gate, now)
  if record.sticky then return PERSON end
  if record.until_us then return math.max(0, record.until_us - now) end
  return is_tried(record, gate, now) and now < record.trial and ASK_AGAIN or 0
end

local function is_trial(record, gate, now)
  if record.until_us then return true end
  return is_tried(record, gate, now) and now - record.trial > GOOD_FOR
end

local function begin_trial(key, record, gate, now)
  if record.until_us then
    redis.call('HSET', key, 'until', as_text(now + gate.probe))
  elseif is_trial(record, gate, now) then
    redis.call('HSET', key, 'trial', as_text(now + gate.trial))
    redis.call('PEXPIRE', key, as_text(KEPT))
  end
end
