-- The end of an acquire that was granted: its fence, by `number`.

local went_well, fence = pcall(number, ARGV[3], ARGV[2])
if not went_well then
  -- Not a counter, or at its end: scripts are not rolled back, so undo the lock by hand.
  redis.call('DEL', KEYS[1])
  return type(fence) == 'table' and fence or redis.error_reply(fence)
end
return fence
