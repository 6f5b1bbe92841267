-- Take the lock if it is free and nobody waits; else join the queue (queue_join.lua).
-- KEYS, ARGV: see queue_common.lua
-- Returns the last fence taken, or what queue_join.lua does.

local waiting = redis.call('ZCARD', QUEUE)
local holder = redis.call('GET', LOCK)
local granted = {}
if not holder then
  -- With waiters: let go without a word, expired or released by somebody who knows no queue.
  granted = waiting > 0 and grant_next()
  if not granted then
    return grant(OWNER, TTL, FENCES)
  end
  if granted[1] == OWNER then
    return granted[2]
  end
elseif holder == OWNER then
  -- Ours already: the reply or the message was lost, and its fence with it.
  return grant(OWNER, TTL, FENCES)
elseif is_foreign(holder) then
  return FOREIGN
end
