-- Moves an entry that does not decode from a pod's unclaimed entries to the dead letters.
-- KEYS    1 claiming:<address>, 2 dead_letters
-- ARGV    1 the entry, 2 address
-- Answers {done}
if redis.call('LREM', KEYS[1], 0, ARGV[1]) > 0 then
  redis.call('XADD', KEYS[2], 'MAXLEN', '~', 1000, '*', 'at', int(now_ms()), 'register', 'tasks',
    'id', ARGV[2], 'entry', string.sub(ARGV[1], 1, 65536))
end
return { 'done' }
