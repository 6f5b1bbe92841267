-- What the scripts of the fair queue share.
-- KEYS: lock, fence counter, queue, sessions, [the shard's counter]
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

-- What concerns those who hold the lock beside others: queue_shared.lua.
local sharing

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
      granted = sharing().begin(member)
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
