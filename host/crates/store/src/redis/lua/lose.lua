-- Ends a run that cannot go on, if it still is as the caller saw it.
-- KEYS    1-14 of the run, 15 leader, 16 leader:term, 17 quarantined, 18 changes
-- ARGV    1 address, 2 session, 3 term, 4 job, 5 run, 6 delivery seen or '', 7 fence seen or '',
--         8 state, 9 why (JSON), 10 outcome (JSON), 11 hold (JSON) to quarantine the job or '',
--         12 record kept for (ms), 13 runs kept
-- Answers {lost} | {changed} | {alive} | {not-leader}
if not leads(KEYS[15], KEYS[16]) then return { 'not-leader' } end
local job, run, fence, state, why = ARGV[4], ARGV[5], ARGV[7], ARGV[8], ARGV[9]
local executes = fence ~= ''
local entry
if executes then
  entry = running_of(redis.call('HGET', K.running, run))
else
  entry = scheduled_of(redis.call('HGET', K.scheduled, run))
end
if not entry then
  local ended = redis.call('HMGET', K.record, 'state', 'why')
  return { ended[1] == state and ended[2] == why and 'lost' or 'changed' }
end
if (executes and entry.fence ~= fence) or (not executes and entry.delivery ~= ARGV[6]) then
  return { 'changed' }
end
if executes and holds(K.lock, run, fence) then return { 'alive' } end
if not executes and redis.call('HEXISTS', K.running, run) == 1 then
  redis.call('HDEL', K.scheduled, run) -- it executes: the other entry is a stray
  return { 'changed' }
end
local now, register, t = now_ms(), executes and K.running or K.scheduled, task_of(entry.task)
if not t or drop_stray(register, job, run, now) then return { 'changed' } end
check_types()
redis.call('HLEN', KEYS[17])
if ARGV[11] ~= '' then note_change(KEYS[18], job, now) end
if executes then close_attempt(entry, t, now, 'l', '', ARGV[10]) end
if ARGV[11] ~= '' then
  redis.call('HSET', KEYS[17], job, int(now) .. '|' .. ARGV[11])
  wake(K.control, '{"wake":"jobs"}')
end
end_run(job, run, now, state, why, t.json, ARGV[12], ARGV[13])
redis.call('HDEL', register, run)
log(K.log, now, 'run.lost', job, run, 'pod', entry.pod, 'attempt', int(t.attempt), 'state', state,
  'why', why, 'quarantined', ARGV[11] ~= '' and '1' or '0')
return { 'lost' }
