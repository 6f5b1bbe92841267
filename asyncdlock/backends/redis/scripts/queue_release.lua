-- Pass the lock on to the next waiter, or leave the queue.
-- KEYS, ARGV: see queue_common.lua; ARGV[7], optional: the last fence that was granted, to give back that
--             grant and no later one
-- Returns 0 when the lock was not owned, 1 when it was, or {owner, fence} of a grant to our session.

local owned = redis.call('GET', LOCK) == OWNER
if not owned or ARGV[7] and redis.call('GET', FENCE) ~= ARGV[7] then
  if redis.call('ZREM', QUEUE, MEMBER) == 1 and redis.call('ZCARD', QUEUE) == 0 then
    redis.call('DEL', SESSIONS)
  end
  return 0
end
local granted = grant_next()
if not granted then
  redis.call('DEL', LOCK)
  return 1
end
if granted[1] then
  return granted
end
return 1
