-- Moves an entry that does not decode to the dead letters and ends its run as lost.
-- KEYS    1-14 of the run (of a run nobody has, where the id is no run's), 15 leader,
--         16 leader:term, 17 dead_letters
-- ARGV    1 address, 2 session, 3 term, 4 job or '', 5 id (its bytes), 6 'scheduled', 'running' or 'delayed',
--         7 why (JSON), 8 record kept for (ms), 9 runs kept
-- Answers {buried} | {none} | {not-leader}
if not leads(KEYS[15], KEYS[16]) then return { 'not-leader' } end
local job, id, register = ARGV[4], ARGV[5], ARGV[6]
local entry = redis.call('HGET', K[register], id)
local stray = register == 'delayed' and redis.call('ZSCORE', K.due, id)
if not entry and not stray then return { 'none' } end
check_types()
local now = now_ms()
redis.call('XADD', KEYS[17], 'MAXLEN', '~', 1000, '*', 'at', int(now), 'register', register,
  'id', id, 'entry', string.sub(entry or '', 1, 65536))
redis.call('HDEL', K[register], id)
if register == 'delayed' then
  redis.call('ZREM', K.due, id)
  redis.call('ZREM', K.parked, 's|' .. id, 'k|' .. id)
end
-- A stray beside a good entry, or of a run that is over, goes without a trace in the record.
for _, other in ipairs({ K.running, K.scheduled, K.delayed }) do
  if redis.call('HEXISTS', other, id) == 1 then return { 'buried' } end
end
if job == '' or redis.call('HEXISTS', K.record, 'state') == 1 then return { 'buried' } end
local held = redis.call('GET', K.lock)
if held and string.find(held, '|' .. id .. '|', 1, true) then redis.call('DEL', K.lock) end
end_run(job, id, now, 'lost', ARGV[7], redis.call('HGET', K.record, 'task') or '{}', ARGV[8], ARGV[9])
log(K.log, now, 'run.lost', job, id, 'state', 'lost', 'why', ARGV[7])
return { 'buried' }
