-- The end of an acquire that was not granted: join the queue.
-- ARGV[7]: how many may wait (0: do not join), -1: any number
-- Returns
-- {place in the order of arrival or 0, PTTL of the holder, server time in ms, [owner, fence of a grant to our session]}.

local now = now_ms()
local limit = tonumber(ARGV[7])
local place = 0
if limit < 0 or redis.call('ZCARD', QUEUE) < limit then
  place = redis.call('HINCRBY', SESSIONS, 'seq', 1)
  if redis.call('ZADD', QUEUE, 'NX', place, MEMBER) == 0 then
    place = 0
  elseif place % 1000 == 0 then
    forget_silent(now)
  end
end
if place == 0 then
  -- It may have joined before: the reply was lost.
  place = tonumber(redis.call('ZSCORE', QUEUE, MEMBER) or 0)
end
if place > 0 then
  speak(now)
end
return {place, redis.call('PTTL', LOCK), now, granted[1], granted[2]}
