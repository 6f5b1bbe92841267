-- Who holds a lock and who waits for it.
-- KEYS: lock, fence counter, queue
-- Returns {holder or '', PTTL of the holder, the last fence given out, server time in ms, then a waiter's "owner ttl fences"
--          each, in order}.

local time = redis.call('TIME')
local found = {
  redis.call('GET', KEYS[1]) or '',
  redis.call('PTTL', KEYS[1]),
  redis.call('GET', KEYS[2]) or '0',
  time[1] * 1000 + math.floor(time[2] / 1000),
}
-- pcall: a user of the plain recipe may not be permitted to read queues.
local waiting = redis.pcall('ZRANGE', KEYS[3], 0, -1)
if not waiting.err then
  for i = 1, #waiting do
    found[4 + i] = waiting[i]
  end
end
return found
