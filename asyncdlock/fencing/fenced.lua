-- A value with its fences in one hash: value, fence and seq of the last write, seen: the highest fence.
-- One key each, so that no key can touch another's marks and a cluster keeps them together.

-- Decimal digits, not numbers: a Lua number is exact up to 2^53 only.
local function less(a, b)
  if #a ~= #b then return #a < #b end
  return a < b
end

-- KEYS: key. ARGV: fence, seq, value.
-- {'ok'}, {'again'} for a repetition of the last write, {'stale', seen}, {'behind', seq of the last write}
local function put(keys, args)
  local key, fence, seq, value = keys[1], args[1], args[2], args[3]
  local last = redis.call('HMGET', key, 'fence', 'seq', 'seen', 'value')
  local seen = last[3] or '0'
  if less(fence, seen) then return {'stale', seen} end
  if last[1] == fence and not less(last[2], seq) then
    if last[2] == seq and last[4] == value then return {'again'} end
    return {'behind', last[2]}
  end
  redis.call('HSET', key, 'value', value, 'fence', fence, 'seq', seq, 'seen', fence)
  return {'ok'}
end

-- KEYS: key. ARGV: fence, or nothing for a read that fences nobody.
-- {'ok', value or nil, fence of the value, seen} or {'stale', seen}
local function get(keys, args)
  local key, fence = keys[1], args[1]
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
