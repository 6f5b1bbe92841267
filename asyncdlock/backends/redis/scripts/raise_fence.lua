-- Lift the fence counter to at least a floor.
-- KEYS: lock, fence counter, [the shard's counter]
-- ARGV: floor, in decimal
-- Returns 1 when it was lifted, else 0.

return lift(ARGV[1])
