-- What a client tells of itself and of some of its owners.
-- KEYS: the client's record
-- ARGV: owners
-- Returns {label, fences, ttl, then for each owner its label and when it was granted}; '' for what is not known.

local fields = {'label', 'fences', 'ttl'}
for i = 1, #ARGV do
  fields[2 * i + 2] = 'label ' .. ARGV[i]
  fields[2 * i + 3] = 'since ' .. ARGV[i]
end
local found = {}
for i = 1, #fields do
  found[i] = redis.call('HGET', KEYS[1], fields[i]) or ''
end
return found
