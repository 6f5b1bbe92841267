-- Take the lock if it is free, and its fence in the same step: by acquire_count.lua or acquire_number.lua.
-- KEYS: lock, fence counter, [the shard's counter]
-- ARGV: owner, ttl in ms, number of fences to take
-- Returns the last fence taken, or {PTTL of the holder} (-1: the holder has no TTL).

if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  local holder = redis.call('GET', KEYS[1])
  if holder ~= ARGV[1] then
    local pttl = redis.call('PTTL', KEYS[1])
    if pttl == -1 and not (string.match(holder, '^[%x-]+$') and (#holder == 32 or #holder == 36)) then
      -- Neither an end nor a UUID, as redis-py's Lock would store: whoever waited for it would wait for ever.
      return redis.error_reply('FOREIGN the lock\'s key holds a string that is no lock')
    end
    return {pttl}
  end
  -- Ours already: the reply to an earlier try was lost. Its fence too, so take another.
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
