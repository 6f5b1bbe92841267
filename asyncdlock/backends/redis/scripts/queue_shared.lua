-- What the queue does with those who hold the lock beside others, or want to: `sharing` of queue_common.lua.

sharing = function()
  -- Not among KEYS, to spare the plain lock a word in each request: it lies in the same slot by its name.
  local holders = 'holders' .. string.sub(QUEUE, 6)
  local leases = leases_of(LOCK, holders)
  local shared = {leases = leases}

  -- Give `owner` a lease; its fence. What an earlier time left in the set does not count.
  function shared.grant(owner, ttl)
    local fence = grant(nil, ttl, 1)
    if redis.call('GET', LOCK) ~= SHARED then
      redis.call('DEL', holders)
      redis.call('SET', LOCK, SHARED)
    end
    leases.extend(owner, ttl)
    return fence
  end

  -- Whether there is room for one more; `limit`: how many may hold the lock at once, 0 for any number.
  function shared.has_room(limit)
    local holder = redis.call('GET', LOCK)
    if holder ~= SHARED then
      return not holder
    end
    local count = leases.count()
    return limit == 0 or count < limit
  end

  local function lives(session)
    return session == session_of(OWNER) or speaks(session)
  end

  -- Let in a waiter: {owner, fence} if it is OWNER, {} if it was told by a message, nil if it is not alive. Always
  -- by a message, because one script can let in many of one process.
  local function let_in(member)
    local owner, ttl = string.match(member, '^(%S+) (%d+)')
    if not lives(session_of(owner)) then
      return nil
    end
    local fence = shared.grant(owner, ttl)
    if owner == OWNER then
      return {owner, fence}
    end
    if tell(owner, fence) then
      return {}
    end
    leases.drop(owner)
    return nil
  end

  -- Let in the waiters in front for as long as there is room for them; returns what `let_in` did for OWNER, else {} or nil.
  -- One in front who cannot go in and is not alive must not keep out those behind it.
  function shared.let_in_all()
    local granted
    local member = redis.call('ZRANGE', QUEUE, 0, 0)[1]
    while member do
      local limit = string.match(member, '^%S+ %d+ %d+ (%d+)$')
      if limit and shared.has_room(tonumber(limit)) then
        redis.call('ZREM', QUEUE, member)
        local one = let_in(member)
        if one and not (granted and granted[1]) then
          granted = one
        end
      elseif lives(session_of(member)) then
        return granted
      else
        redis.call('ZREM', QUEUE, member)
      end
      member = redis.call('ZRANGE', QUEUE, 0, 0)[1]
    end
    redis.call('DEL', SESSIONS)
    return granted
  end

  -- A free lock goes to `member`, which has left the queue, and to those behind it; as `let_in_all`.
  function shared.begin(member)
    local granted = let_in(member)
    if granted then
      local more = shared.let_in_all()
      return granted[1] and granted or more or granted
    end
    return nil
  end

  -- Some leases may have ended: let in whoever may go in now; as `grant_next`.
  function shared.serve()
    if leases.count() > 0 then
      return shared.let_in_all()
    end
    redis.call('DEL', LOCK)
    return grant_next()
  end

  -- Milliseconds until a lease ends.
  function shared.next_end()
    local first = redis.call('ZRANGE', holders, 0, 0, 'WITHSCORES')[2]
    return math.max(0, tonumber(first or 0) - now_ms())
  end

  return shared
end
