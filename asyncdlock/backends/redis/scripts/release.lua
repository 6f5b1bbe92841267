-- Compare and delete: a lock that expired and was taken by another is left alone.
-- KEYS: lock
-- ARGV: owner
-- Returns 1 when it was owned, else 0.

-- pcall: a key that became another type is not ours either.
if redis.pcall('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
