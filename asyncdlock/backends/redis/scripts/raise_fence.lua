-- Lift the fence counter to at least a floor.
-- KEYS: fence counter
-- ARGV: floor, in decimal
-- Returns 1 when it was lifted, else 0.

-- Compared as digits: Lua's numbers are exact to 2^53 only.
local current = redis.call('GET', KEYS[1]) or '0'
local floor = ARGV[1]
if #current < #floor or (#current == #floor and current < floor) then
  redis.call('SET', KEYS[1], floor)
  return 1
end
return 0
