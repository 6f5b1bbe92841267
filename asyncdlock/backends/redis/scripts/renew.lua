-- Extend the leases that are still owned; never re-create one.
-- KEYS: n locks
-- ARGV: n owners, then n ttls in ms
-- Returns n times 1 (extended) or 0 (owned by another, or gone).

local states = {}
for i = 1, #KEYS do
  if redis.call('GET', KEYS[i]) == ARGV[i] then
    states[i] = redis.call('PEXPIRE', KEYS[i], ARGV[#KEYS + i])
  else
    states[i] = 0
  end
end
return states
