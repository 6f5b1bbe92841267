-- Extend the leases of those who hold a lock beside others, if they still do; never re-create one.
-- KEYS: n locks, then n sets of holders; if fence counters expire, n of them (outlast.lua)
-- ARGV: n owners, then n ttls in ms
-- Returns n times 1 (extended) or 0 (held no longer).

local states = {}
local n = #ARGV / 2
for i = 1, n do
  local leases = leases_of(KEYS[i], KEYS[n + i])
  states[i] = 0
  if leases.has(ARGV[i]) then
    leases.extend(ARGV[i], ARGV[n + i])
    states[i] = 1
    if KEYS[2 * n + i] then
      outlast(KEYS[2 * n + i], ARGV[n + i])
    end
  end
end
return states
