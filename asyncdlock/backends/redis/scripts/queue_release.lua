-- Pass the lock on to the next waiter, or leave the queue.
-- KEYS, ARGV: see queue_common.lua; ARGV[7], optional: the last fence that was granted, to give back that
--             grant and no later one
-- Returns 0 when the lock was not owned, 1 when it was, or {owner, fence} of a grant to our session.

-- pcall: a key that became another type is not ours either.
local holder = redis.pcall('GET', LOCK)
local shared = holder == SHARED and sharing()
if shared and shared.leases.has(OWNER) then
  shared.leases.drop(OWNER)
  local went_well, granted = pcall(shared.serve)
  return went_well and granted and granted[1] and granted or 1
end
local owned = holder == OWNER
if not owned or ARGV[7] and redis.call('GET', FENCE) ~= ARGV[7] then
  if redis.pcall('ZREM', QUEUE, MEMBER) == 1 and shared then
    shared.let_in_all()  -- perhaps it was all that kept out those behind it
  end
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
