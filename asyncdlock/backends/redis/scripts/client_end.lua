-- A client has nothing to tell any more.
-- KEYS: the client's record
-- Returns 1 when there was one.

return redis.call('DEL', KEYS[1])
