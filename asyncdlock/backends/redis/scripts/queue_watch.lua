-- A process that waits says that it lives, and serves the queue if the lock was let go without a word.
-- KEYS, ARGV: see queue_common.lua, for the process's first waiter; ARGV[7]: the verb that counts subscribers
-- Returns {1 if that waiter waits, else 0, ms until the holder's lease ends (-1: never), server time in ms,
--          1 if the holder will pass the lock on by a message, else 0, the holder if it is of our session, else '',
--          [owner, fence of a grant to our session]}.

local now = now_ms()
local holder = redis.call('GET', LOCK)
local granted = {}
if not holder then
  granted = grant_next() or granted
elseif holder == SHARED then
  granted = sharing().serve() or granted
end
local waits = redis.call('ZSCORE', QUEUE, MEMBER) or granted[1] == OWNER
if redis.call('ZCARD', QUEUE) > 0 then
  speak(now)
end
holder = redis.call('GET', LOCK) or ''
if is_foreign(holder) then
  return FOREIGN
end
local tells = 0
if holder == SHARED or redis.call('PUBSUB', ARGV[7], CHANNEL .. session_of(holder))[2] > 0 then
  tells = 1
end
local ends = holder == SHARED and sharing().next_end() or redis.call('PTTL', LOCK)
if session_of(holder) ~= session_of(OWNER) then
  holder = ''
end
return {waits and 1 or 0, ends, now, tells, holder, granted[1], granted[2]}
