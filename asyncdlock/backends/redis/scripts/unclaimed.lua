-- Whether nobody else has had the lock since a grant: it is free and no fence was given out after that grant's, or
-- it went to the next waiter of the same session, with the very next fences.
-- KEYS: lock, fence counter
-- ARGV: the last fence of the grant, the session, the last fence of the next grant
-- Returns 1 if so, else 0.

local holder = redis.call('GET', KEYS[1])
local counter = redis.call('GET', KEYS[2])
if not holder then
  return counter == ARGV[1] and 1 or 0
end
return string.sub(holder, 1, 23) == ARGV[2] and counter == ARGV[3] and 1 or 0
