-- A fence counter for each key, which stays: how it is lifted.
-- KEYS[2]: fence counter

-- To at least a floor, in decimal; 1 when it was below, else 0.
local function lift(floor)
  if is_below(redis.call('GET', KEYS[2]) or '0', floor) then
    redis.call('SET', KEYS[2], floor)
    return 1
  end
  return 0
end
