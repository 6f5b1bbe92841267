-- A fence counter for all keys of a slot.
-- KEYS[2]: the last fence of this key, for LIFE ms longer than its lease; KEYS[#KEYS]: the shard's counter, which stays

-- The shard's counter, in decimal. It begins at the clock, in µs since the epoch: above what the keys were given by
-- counters of their own, and most often above what it was before it was lost.
local function count()
  local digits = redis.call('GET', KEYS[#KEYS])
  if not digits then
    local time = redis.call('TIME')
    digits = string.format('%.0f', time[1] * 1000000 + time[2])
    redis.call('SET', KEYS[#KEYS], digits)
  end
  return digits
end

-- To at least a floor, in decimal; 1 when it was below, else 0.
local function lift(floor)
  if is_below(count(), floor) then
    redis.call('SET', KEYS[#KEYS], floor)
    return 1
  end
  return 0
end

-- Count up by `fences`; the last of them, as digits past 2^53. `ttl`, in ms: of the lease.
local function number(fences, ttl)
  local last = redis.call('GET', KEYS[2]) or '0'
  if not string.match(last, '^%d+$') then
    error("value is not an integer")
  end
  lift(last)  -- by another numbering, it may have gone further
  local fence = redis.call('INCRBY', KEYS[#KEYS], fences)
  local digits = fence > 9007199254740991 and redis.call('GET', KEYS[#KEYS])
  redis.call('SET', KEYS[2], digits or string.format('%.0f', fence), 'PX', string.format('%.0f', LIFE + ttl))
  return digits or fence
end
