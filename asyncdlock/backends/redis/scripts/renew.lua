-- Extend the leases that are still owned; never re-create one.
-- KEYS: n locks; if fence counters expire, n of them (outlast.lua)
-- ARGV: n owners, then n ttls in ms
-- Returns n times 1 (extended) or 0 (owned by another, or gone).

local states = {}
local n = #ARGV / 2
for i = 1, n do
  -- pcall: a key that became another type is not ours, and must not fail the renewal of the others.
  if redis.pcall('GET', KEYS[i]) == ARGV[i] then
    states[i] = redis.call('PEXPIRE', KEYS[i], ARGV[n + i])
    if KEYS[n + i] then
      outlast(KEYS[n + i], ARGV[n + i])
    end
  else
    states[i] = 0
  end
end
return states
