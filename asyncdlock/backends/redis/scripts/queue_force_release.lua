-- Take the lock from its holder, lift the fence counter, and pass the lock on to the next waiter.
-- KEYS, ARGV: see queue_common.lua; ARGV[7]: a floor for the counter, in decimal; ARGV[8]: the holder, '' for none
-- Returns 0 when somebody else holds it by now, 1 when that one did, or {owner, fence} of a grant to our session.

-- What the holder's process had reserved was counted when it was granted: the next fence is above all of it.
lift(ARGV[7])
grant(nil, 0, 1)
if (redis.call('GET', LOCK) or '') ~= ARGV[8] then
  return 0
end
-- Whoever held it beside others as well: their set is named like the queue.
redis.call('DEL', LOCK, 'holders' .. string.sub(QUEUE, 6))
-- pcall: who waits meets the error of a queue that cannot be served.
local went_well, granted = pcall(grant_next)
if went_well and granted and granted[1] then
  return granted
end
return 1
