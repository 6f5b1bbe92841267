-- A fence counter for each key that may be forgotten, because it follows the server's clock.
-- KEYS[2]: fence counter. Its number stands for a moment, in µs since the epoch, and it expires LIFE ms after that
--          moment: so when it is gone, the clock is further than any fence of the key, by LIFE.

local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- `ttl`, in ms: of the lease, which the counter outlasts.
local function expire(fence, ttl)
  redis.call('PEXPIREAT', KEYS[2], string.format('%.0f', fence / 1000 + LIFE + ttl))
end

-- Count up by `fences`, from the clock if that is further; the last of them, as digits past 2^53.
local function number(fences, ttl)
  local fence = redis.call('INCRBY', KEYS[2], fences)
  local now = clock()
  if fence - fences < now then
    fence = now + fences
    redis.call('SET', KEYS[2], string.format('%.0f', fence))
  end
  expire(fence, ttl)
  if fence > 9007199254740991 then
    return redis.call('GET', KEYS[2])
  end
  return fence
end

-- To at least a floor, in decimal; 1 when it was below, else 0.
local function lift(floor)
  if is_below(redis.call('GET', KEYS[2]) or '0', floor) then
    redis.call('SET', KEYS[2], floor)
    expire(math.max(tonumber(floor), clock()), 0)
    return 1
  end
  return 0
end
