-- The end of an acquire that was granted: its fence, by a counter for each key that stays.

local fence = redis.pcall('INCRBY', KEYS[2], ARGV[3])
if type(fence) == 'table' then
  -- Not a counter, or at its end: scripts are not rolled back, so undo the lock by hand.
  redis.call('DEL', KEYS[1])
  return fence
end
if fence > 9007199254740991 then
  -- Lua counts in doubles: past 2^53 only the stored digits are exact.
  return redis.call('GET', KEYS[2])
end
return fence
