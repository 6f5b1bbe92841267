-- Extend the leases that are still owned; never re-create one.
-- KEYS: n locks
-- ARGV: n owners, then n ttls in ms
-- Returns n times 1 (extended) or 0 (owned by another, or gone).

local states = {}
for i = 1, #KEYS do
  -- pcall: a key that became another type is not ours, and must not fail the renewal of the others.
  if redis.pcall('GET', KEYS[i]) == ARGV[i] then
    states[i] = redis.call('PEXPIRE', KEYS[i], ARGV[#KEYS + i])
  else
    states[i] = 0
  end
end
return states
