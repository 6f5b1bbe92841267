-- Hold the lock beside others if they let it and nobody waits; else join the queue.
-- KEYS, ARGV: see queue_common.lua; ARGV[7]: how many may wait (0: do not join), -1: any number
-- Returns the fence, or
-- {place in the order of arrival or 0, ms until a lease ends, server time in ms, [owner, fence of a grant to our session]}.

if shares(LOCK, HOLDERS, OWNER) then
  -- Ours already: the reply or the message was lost, and its fence with it.
  return grant_beside(OWNER, TTL)
end
local granted = {}
if redis.call('EXISTS', QUEUE) == 1 then
  granted = serve() or granted
  if granted[1] == OWNER then
    return granted[2]
  end
end
if redis.call('EXISTS', QUEUE) == 0 and has_room(tonumber(string.match(FENCES, '%d+$'))) then
  return grant_beside(OWNER, TTL)
end
return {join(tonumber(ARGV[7])), next_end(), now_ms(), granted[1], granted[2]}
