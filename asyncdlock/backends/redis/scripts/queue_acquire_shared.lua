-- Hold the lock beside others if they let it and nobody waits; else join the queue (queue_join.lua).
-- KEYS, ARGV: see queue_common.lua
-- Returns the fence, or what queue_join.lua does.

local shared = sharing()
if shared.leases.has(OWNER) then
  -- Ours already: the reply or the message was lost, and its fence with it.
  return shared.grant(OWNER, TTL)
end
local granted = {}
if redis.call('EXISTS', QUEUE) == 1 then
  local holder = redis.call('GET', LOCK)
  if not holder then
    granted = grant_next() or granted
  elseif holder == SHARED then
    granted = shared.serve() or granted
  end
  if granted[1] == OWNER then
    return granted[2]
  end
end
if redis.call('EXISTS', QUEUE) == 0 and shared.has_room(tonumber(string.match(FENCES, '%d+$'))) then
  return shared.grant(OWNER, TTL)
end
