-- A client tells of itself and of some of its owners, for whoever inspects their locks.
-- KEYS: the client's record, a hash
-- ARGV: ms for which the record shall last, names of fields to remove (separated by spaces),
--       then fields and values to set
-- Returns 1.
--
-- label: what its owners go by; fences: how many each grant takes; ttl: of its locks, 0 when they differ
-- `label OWNER`: that of one owner; `since OWNER`: when it was granted, in s since the epoch, and its fence

for field in string.gmatch(ARGV[2], '%S+') do
  redis.call('HDEL', KEYS[1], 'label ' .. field, 'since ' .. field)
end
if #ARGV > 2 then
  redis.call('HSET', KEYS[1], unpack(ARGV, 3))
end
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[1]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
end
return 1
