-- Moves what waits in a pod's queue to its unclaimed entries, without waiting.
-- KEYS    1 tasks:<address>, 2 claiming:<address>
-- ARGV    1 how many at most
-- Answers the entries
local taken = {}
for i = 1, tonumber(ARGV[1]) do
  local entry = redis.call('LMOVE', KEYS[1], KEYS[2], 'LEFT', 'RIGHT')
  if not entry then break end
  taken[i] = entry
end
return taken
