-- A lock that several hold beside each other: readers, or the holders of a semaphore's permits.
--
-- lock:    SHARED, until the last of their leases ends: whoever knows owners only sees a lock that is held
-- holders: sorted set of owners, by the server time in ms at which their leases end

local SHARED = 'asyncdlock:shared'

local clock
local function now_ms()
  if not clock then
    local time = redis.call('TIME')
    clock = time[1] * 1000 + math.floor(time[2] / 1000)
  end
  return clock
end

-- The lock and the set end with the last lease.
local function end_with_the_last(lock, holders)
  local last = redis.call('ZREVRANGE', holders, 0, 0, 'WITHSCORES')[2]
  redis.call('PEXPIREAT', lock, last)
  redis.call('PEXPIREAT', holders, last)
end

-- Whether `owner` holds it beside others: the set alone does not tell, it may be of an earlier time.
local function shares(lock, holders, owner)
  return redis.pcall('GET', lock) == SHARED and tonumber(redis.call('ZSCORE', holders, owner) or 0) > now_ms()
end

-- Begin a lease of `owner`, or extend it.
local function share(lock, holders, owner, ttl)
  redis.call('ZADD', holders, string.format('%.0f', now_ms() + ttl), owner)
  end_with_the_last(lock, holders)
end
