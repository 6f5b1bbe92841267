-- Pass the lock on to the next waiter, or leave the queue.
-- KEYS, ARGV: see queue_common.lua; ARGV[7], optional: the last fence that was granted, to give back that
--             grant and no later one
-- Returns 0 when the lock was not owned, 1 when it was, or {owner, fence} of a grant to our session.

-- pcall: a key that became another type is not ours either.
local owned = redis.pcall('GET', LOCK) == OWNER
if not owned or ARGV[7] and redis.call('GET', FENCE) ~= ARGV[7] then
  redis.pcall('ZREM', QUEUE, MEMBER)
  if redis.call('EXISTS', QUEUE) == 0 then
    redis.call('DEL', SESSIONS)
  end
  return 0
end
-- A counter that cannot be raised must not keep the lock from its release: who waits will meet that error.
local went_well, granted = pcall(grant_next)
if not went_well or not granted then
  redis.call('DEL', LOCK)
  return 1
end
if granted[1] then
  return granted
end
return 1
