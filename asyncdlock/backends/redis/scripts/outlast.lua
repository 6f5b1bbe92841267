-- Let a fence counter that expires live on for LIFE ms after a lease of `ttl` ms, which begins now.

local function outlast(counter, ttl)
  local left = redis.call('PTTL', counter)
  if left >= 0 and left < ttl + LIFE then
    redis.call('PEXPIRE', counter, string.format('%.0f', ttl + LIFE))
  end
end
