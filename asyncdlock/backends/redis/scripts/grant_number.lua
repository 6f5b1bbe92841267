-- As grant.lua, with fences by `number`.
-- KEYS: lock, …

local function grant(owner, ttl, fences)
  local fence = number(fences, ttl)
  if owner then
    redis.call('SET', KEYS[1], owner, 'PX', ttl)
  end
  return fence
end
