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

-- The leases of such a lock. A table of functions that is made when it is needed: to make a function takes a script
-- half as long as a command, and the plain lock needs none of these.
local function leases_of(lock, holders)
  local leases = {}

  -- The lock and the set end with the last lease.
  local function settle()
    local last = redis.call('ZREVRANGE', holders, 0, 0, 'WITHSCORES')[2]
    redis.call('PEXPIREAT', lock, last)
    redis.call('PEXPIREAT', holders, last)
  end

  -- Whether `owner` has one: the set alone does not tell, it may be of an earlier time.
  function leases.has(owner)
    return redis.pcall('GET', lock) == SHARED and tonumber(redis.call('ZSCORE', holders, owner) or 0) > now_ms()
  end

  -- Begin one, or extend it.
  function leases.extend(owner, ttl)
    redis.call('ZADD', holders, string.format('%.0f', now_ms() + ttl), owner)
    settle()
  end

  -- How many there are, without those that have ended: none ends while the script runs, whose clock stands still.
  local swept
  function leases.count()
    if not swept then
      redis.call('ZREMRANGEBYSCORE', holders, '-inf', now_ms())
      swept = true
    end
    return redis.call('ZCARD', holders)
  end

  -- End one; with the last, the lock is free.
  function leases.drop(owner)
    redis.call('ZREM', holders, owner)
    if leases.count() == 0 then
      redis.call('DEL', lock)
    else
      settle()
    end
  end

  return leases
end
