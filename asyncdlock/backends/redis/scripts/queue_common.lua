-- What the scripts of the fair queue share.
-- KEYS: lock, fence counter, queue, sessions
-- ARGV: owner, ttl in ms, fences per grant, patience in ms, PUBLISH or SPUBLISH, channel prefix, …
--       Who wants to hold the lock beside others says "1 limit" for the fences: how many may hold it, 0 any number.
--
-- queue:    sorted set of "owner ttl fences", by order of arrival
-- sessions: hash of session -> server time in ms until which it counts as alive, `patience session` -> its patience
--           in ms, and `seq`, the last arrival
--
-- A session is the common start of the owners of one client, and the end of its channel's name.

local LOCK, FENCE, QUEUE, SESSIONS = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local OWNER, TTL, FENCES, PATIENCE, PUBLISH, CHANNEL = unpack(ARGV, 1, 6)
local MEMBER = OWNER .. ' ' .. TTL .. ' ' .. FENCES
-- Not among KEYS, to spare the plain lock a word in each request: it lies in the same slot by its name.
local HOLDERS = 'holders' .. string.sub(QUEUE, 6)

local function session_of(owner)
  return string.sub(owner, 1, 23)
end

-- Whether the lock's key holds no lock: neither an end nor a UUID, as redis-py's Lock would store. Whoever waited for
-- it would wait for ever.
local FOREIGN = {err = "FOREIGN the lock's key holds a string that is no lock"}
local function is_foreign(holder)
  local token = #holder == 36 or #holder == 32
  return not (token and string.match(holder, '^[%x-]+$')) and redis.call('PTTL', LOCK) == -1
end

-- Give the lock to `owner`; the last of the fences taken, as digits past 2^53 (Lua counts in doubles).
-- The counter comes first: should it fail, the script ends with the lock untouched.
local function grant(owner, ttl, fences)
  local fence = redis.call('INCRBY', FENCE, fences)
  redis.call('SET', LOCK, owner, 'PX', ttl)
  if fence > 9007199254740991 then
    return redis.call('GET', FENCE)
  end
  return fence
end

-- Tell the process of a waiter that it has the lock; whether anybody listens.
local function tell(owner, fence)
  local digits = type(fence) == 'string' and fence or string.format('%.0f', fence)
  local message = owner .. ' ' .. digits .. ' ' .. string.format('%.0f', now_ms()) .. ' ' .. LOCK
  return redis.call(PUBLISH, CHANNEL .. session_of(owner), message) > 0
end

-- Whether a process has spoken lately, by its own measure of patience. One that is frozen or cut off has not.
-- A time too far ahead was said before the server's clock was set back, and is not believed.
local function speaks(session)
  local last = tonumber(redis.call('HGET', SESSIONS, session) or 0)
  local ahead = last - now_ms()
  if ahead > 2 * PATIENCE then
    -- Unless that process is more patient than we are.
    return ahead <= 2 * tonumber(redis.call('HGET', SESSIONS, 'patience ' .. session) or 0)
  end
  return ahead >= 0
end

-- Give `owner` a lease beside those of others; its fence. What an earlier time left in the set does not count.
local function grant_beside(owner, ttl)
  local fence = redis.call('INCR', FENCE)
  if redis.call('GET', LOCK) ~= SHARED then
    redis.call('DEL', HOLDERS)
    redis.call('SET', LOCK, SHARED)
  end
  share(LOCK, HOLDERS, owner, ttl)
  if fence > 9007199254740991 then
    return redis.call('GET', FENCE)
  end
  return fence
end

-- Whether one more may hold the lock beside others; `limit`: how many at once, 0 for any number.
local function has_room(limit)
  local holder = redis.call('GET', LOCK)
  if holder ~= SHARED then
    return not holder
  end
  redis.call('ZREMRANGEBYSCORE', HOLDERS, '-inf', now_ms())
  return limit == 0 or redis.call('ZCARD', HOLDERS) < limit
end

-- End the lease of `owner`.
local function leave_others(owner)
  redis.call('ZREM', HOLDERS, owner)
  redis.call('ZREMRANGEBYSCORE', HOLDERS, '-inf', now_ms())
  if redis.call('EXISTS', HOLDERS) == 0 then
    redis.call('DEL', LOCK)
  else
    end_with_the_last(LOCK, HOLDERS)
  end
end

local function lives(session)
  return session == session_of(OWNER) or speaks(session)
end

-- Let in a waiter that is to hold the lock beside others: {owner, fence} if it is OWNER, {} if it was told by a
-- message, nil if it is not alive. Always by a message, because one script can let in many of one process.
local function let_in(member)
  local owner, ttl = string.match(member, '^(%S+) (%d+)')
  if not lives(session_of(owner)) then
    return nil
  end
  local fence = grant_beside(owner, ttl)
  if owner == OWNER then
    return {owner, fence}
  end
  if tell(owner, fence) then
    return {}
  end
  leave_others(owner)
  return nil
end

-- Let in the waiters in front for as long as there is room for them; what `let_in` returned for OWNER, else {} or nil.
-- One in front who cannot go in and is not alive must not keep out those behind it.
local function let_in_all()
  local granted
  local member = redis.call('ZRANGE', QUEUE, 0, 0)[1]
  while member do
    local limit = string.match(member, '^%S+ %d+ %d+ (%d+)$')
    if limit and has_room(tonumber(limit)) then
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

-- Give the lock to the first waiter that lives.
-- nil: nobody waits. {}: the waiter was told by a message. {owner, fence}: it is of our own session.
-- Waiters of a dead or silent process must not cost the others a TTL each, so they are dropped;
-- if the process lives after all, it notices at its next look and queues again.
local function grant_next()
  local granted
  while not granted do
    local member = redis.call('ZPOPMIN', QUEUE)[1]
    if not member then
      break
    end
    local owner, ttl, fences = string.match(member, '^(%S+) (%d+) (%d+)$')
    local session = session_of(member)
    if not owner then
      granted = let_in(member)
      if granted then
        local more = let_in_all()
        granted = granted[1] and granted or more or granted
      end
    elseif session == session_of(OWNER) then
      granted = {owner, grant(owner, ttl, fences)}
    elseif speaks(session) then
      if tell(owner, grant(owner, ttl, fences)) then
        granted = {}
      else
        redis.call('DEL', LOCK)
      end
    end
  end
  if redis.call('EXISTS', QUEUE) == 0 then
    redis.call('DEL', SESSIONS)
  end
  return granted
end

-- Our process lives, and what the queue consists of lasts a while longer; not said again when it was said just now.
local function speak(now)
  local last = redis.call('HGET', SESSIONS, session_of(OWNER))
  local ahead = tonumber(last or 0) - now
  if ahead > 0.9 * PATIENCE and ahead <= tonumber(PATIENCE) then
    return
  end
  local session = session_of(OWNER)
  redis.call('HSET', SESSIONS, session, string.format('%.0f', now + PATIENCE), 'patience ' .. session, PATIENCE)
  -- Never shortened: others may be more patient.
  local lasts = math.max(60000, 20 * PATIENCE)
  for _, name in ipairs({SESSIONS, QUEUE}) do
    if redis.call('PTTL', name) < lasts then
      redis.call('PEXPIRE', name, lasts)
    end
  end
end

-- A queue that is never empty outlives most of those who ever waited in it: forget the silent ones.
local function forget_silent(now)
  local fields = redis.call('HGETALL', SESSIONS)
  for i = 1, #fields, 2 do
    local session = fields[i]
    if #session == 23 and tonumber(fields[i + 1]) < now then
      redis.call('HDEL', SESSIONS, session, 'patience ' .. session)
    end
  end
end

-- Let in whoever may, if the lock was let go without a word or one of several leases has ended; as `grant_next`.
local function serve()
  local holder = redis.call('GET', LOCK)
  if holder == SHARED then
    redis.call('ZREMRANGEBYSCORE', HOLDERS, '-inf', now_ms())
    if redis.call('EXISTS', HOLDERS) == 1 then
      return let_in_all()
    end
    redis.call('DEL', LOCK)
  elseif holder then
    return nil
  end
  return grant_next()
end

-- Milliseconds until a lease ends; -1: never.
local function next_end()
  if redis.call('GET', LOCK) == SHARED then
    local first = redis.call('ZRANGE', HOLDERS, 0, 0, 'WITHSCORES')[2]
    return math.max(0, tonumber(first or 0) - now_ms())
  end
  return redis.call('PTTL', LOCK)
end

-- Join the queue unless `limit` wait already (0: do not join, -1: any number); the place, or 0.
local function join(limit)
  local now = now_ms()
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
  return place
end
