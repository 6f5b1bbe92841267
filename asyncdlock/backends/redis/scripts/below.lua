-- Whether one number lies below another; both in decimal, for Lua's numbers are exact to 2^53 only.

local function is_below(one, other)
  return #one < #other or (#one == #other and one < other)
end
