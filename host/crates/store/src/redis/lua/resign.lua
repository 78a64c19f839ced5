-- Frees the leader's lease if the caller holds it, and wakes the others.
-- KEYS    1 leader, 2 leader:term, 3 execution_log, 4 control
-- ARGV    1 address, 2 session, 3 term
-- Answers {renewed} (freed, also when asked again) | {lost}
local mine = ARGV[1] .. '|' .. ARGV[2] .. '|' .. ARGV[3]
if not leads(KEYS[1], KEYS[2]) then
  return { redis.call('HGET', KEYS[2], 'resigned') == mine and 'renewed' or 'lost' }
end
redis.call('HSET', KEYS[2], 'resigned', mine)
redis.call('DEL', KEYS[1])
log(KEYS[3], now_ms(), 'leader.resigned', '', '', 'pod', ARGV[1], 'term', ARGV[3])
wake(KEYS[4], '{"wake":"leader-free"}')
return { 'renewed' }
