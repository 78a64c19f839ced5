-- Moves entries that do not decode from a pod's unclaimed entries to the dead letters, byte for byte.
-- KEYS    1 claiming:<address>, 2 dead_letters
-- ARGV    1 address, 2... the entries
-- Answers {how many were there}
redis.call('XLEN', KEYS[2])
local now, moved = now_ms(), 0
for i = 2, #ARGV do
  local there = redis.call('LREM', KEYS[1], 0, ARGV[i])
  if there > 0 then
    redis.call('XADD', KEYS[2], 'MAXLEN', '~', 1000, '*', 'at', int(now), 'register', 'tasks',
      'id', ARGV[1], 'entry', string.sub(ARGV[i], 1, 65536))
  end
  moved = moved + there
end
return { int(moved) }
