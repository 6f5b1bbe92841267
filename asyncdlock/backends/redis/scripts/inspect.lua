-- Who holds a lock and who waits for it.
-- KEYS: lock, fence counter, queue, holders (see shared.lua)
-- Returns {holder or '', PTTL of the holder, the last fence given out, server time in ms, {owners who hold it beside each
--          other}, {a waiter's "owner ttl fences" each, in order}}.

local time = redis.call('TIME')
local found = {
  redis.call('GET', KEYS[1]) or '',
  redis.call('PTTL', KEYS[1]),
  redis.call('GET', KEYS[2]) or '0',
  time[1] * 1000 + math.floor(time[2] / 1000),
}
-- pcall: a user of the plain recipe may not be permitted to read queues.
local holders = redis.pcall('ZRANGEBYSCORE', KEYS[4], found[4], '+inf')
local waiting = redis.pcall('ZRANGE', KEYS[3], 0, -1)
found[5] = holders.err and {} or holders
found[6] = waiting.err and {} or waiting
return found
