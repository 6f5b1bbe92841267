-- A value with its fences in one hash: value, fence and seq of the last write, seen: the highest fence.
-- One key each, so that no key can touch another's marks and a cluster keeps them together.

-- Decimal digits, not numbers: a Lua number is exact up to 2^53 only.
local function less(a, b)
  if #a ~= #b then return #a < #b end
  return a < b
end

-- Other programs call this, too. What is no fence must not be compared: by its length `034` is above 35.
local function refused(name, number, least)
  local digits = number == '0' or string.find(number or '', '^[1-9]%d*$')
  if digits and not less(number, least) and less(number, '9223372036854775808') then return nil end
  return redis.error_reply('ERR ' .. name .. ' must be a whole number from ' .. least .. ' to 2^63-1')
end

-- A client may send a write twice whose reply was lost, by itself and long after others have written: so the last writes
-- are remembered, in a ring of fields `past0` and so on, each as 'fence seq digest time'.
local REMEMBERED = 16

local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function signature(fence, seq, value)
  return fence .. ' ' .. seq .. ' ' .. string.sub(redis.sha1hex(value), 1, 16) .. ' '
end

local function is_remembered(key, wanted)
  local names = {}
  for slot = 0, REMEMBERED - 1 do
    names[slot + 1] = 'past' .. slot
  end
  for _, past in ipairs(redis.call('HMGET', key, unpack(names))) do
    if past and string.sub(past, 1, #wanted) == wanted then
      return true
    end
  end
  return false
end

-- KEYS: key. ARGV: fence, seq, value.
-- {'ok'}, {'again'} for the repetition of a write that was stored, {'behind', seq of the last write}, or {'stale', seen,
-- ms since the last write that is forgotten, -1 if none is}: a write of that time or before may have been stored.
local function put(keys, args)
  local key, fence, seq, value = keys[1], args[1], args[2], args[3]
  local refusal = refused('fence', fence, '1') or refused('seq', seq, '0')
  if refusal then return refusal end
  local last = redis.call('HMGET', key, 'fence', 'seq', 'seen', 'value', 'writes', 'forgot')
  local seen = last[3] or '0'
  local stale = less(fence, seen)
  if stale or last[1] == fence and not less(last[2], seq) then
    if last[1] == fence and last[2] == seq and last[4] == value then return {'again'} end
    local wanted = signature(fence, seq, value)
    if is_remembered(key, wanted) then return {'again'} end
    if stale then return {'stale', seen, last[6] and math.max(0, now_ms() - last[6]) or -1} end
    return {'behind', last[2]}
  end
  local writes = tonumber(last[5] or 0)
  local slot = 'past' .. writes % REMEMBERED
  if writes >= REMEMBERED then
    redis.call('HSET', key, 'forgot', string.match(redis.call('HGET', key, slot), '%d+$'))
  end
  local past = signature(fence, seq, value) .. string.format('%.0f', now_ms())
  redis.call('HSET', key, 'value', value, 'fence', fence, 'seq', seq, 'seen', fence, 'writes', writes + 1, slot, past)
  return {'ok'}
end

-- KEYS: key. ARGV: fence, or nothing for a read that fences nobody.
-- {'ok', value or nil, fence of the value, seen} or {'stale', seen}
local function get(keys, args)
  local key, fence = keys[1], args[1]
  local refusal = fence and refused('fence', fence, '1')
  if refusal then return refusal end
  local found = redis.call('HMGET', key, 'value', 'fence', 'seen')
  local seen = found[3] or '0'
  if fence then
    if less(fence, seen) then return {'stale', seen} end
    if less(seen, fence) then
      redis.call('HSET', key, 'seen', fence)
      seen = fence
    end
  end
  return {'ok', found[1], found[2] or '0', seen}
end
