-- Give the lock to `owner`, with so many fences of a counter for each key that stays; the last of them, as digits past
-- 2^53 (Lua counts in doubles). `nil` for the owner: the fences alone.
-- KEYS: lock, fence counter, …
-- The counter comes first: should it fail, the script ends with the lock untouched.

local function grant(owner, ttl, fences)
  local fence = redis.call('INCRBY', KEYS[2], fences)
  if owner then
    redis.call('SET', KEYS[1], owner, 'PX', ttl)
  end
  if fence > 9007199254740991 then
    return redis.call('GET', KEYS[2])
  end
  return fence
end
