-- Makes the caller the session of its address unless a later one is.
-- KEYS    1 pod:<address>, 2 pods
-- ARGV    1 address, 2 session, 3 started (ms), 4 report (JSON), 5 its digest, 6 kept for (ms)
-- Answers {current, now} | {superseded}
local known = redis.call('HMGET', KEYS[1], 'session', 'started')
if known[1] and known[1] ~= ARGV[2] then
  local theirs, mine = tonumber(known[2]) or 0, tonumber(ARGV[3])
  if theirs > mine or (theirs == mine and known[1] > ARGV[2]) then return { 'superseded' } end
  redis.call('DEL', KEYS[1])
end
redis.call('HSET', KEYS[1], 'session', ARGV[2], 'started', ARGV[3], 'report', ARGV[4],
  'digest', ARGV[5])
redis.call('HDEL', KEYS[1], 'left')
redis.call('PEXPIRE', KEYS[1], ARGV[6])
redis.call('SADD', KEYS[2], ARGV[1])
return { 'current', int(now_ms()) }
