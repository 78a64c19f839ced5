-- Ends a run that waits and is due, without another attempt.
-- KEYS    1-14 of the run, 15 leader, 16 leader:term
-- ARGV    1 address, 2 session, 3 term, 4 job, 5 run, 6 state, 7 why (JSON), 8 event,
--         9 record kept for (ms), 10 runs kept
-- Answers {lost} | {changed} (it does not wait any more, is not due or parked) | {not-leader}
if not leads(KEYS[15], KEYS[16]) then return { 'not-leader' } end
local job, run, state, why = ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local entry = delayed_of(redis.call('HGET', K.delayed, run))
if not entry then
  local ended = redis.call('HMGET', K.record, 'state', 'why')
  return { ended[1] == state and ended[2] == why and 'lost' or 'changed' }
end
local now, t = now_ms(), task_of(entry.task)
if not t or entry.due == '' or tonumber(entry.due) > now then return { 'changed' } end
check_types()
end_run(job, run, now, state, why, t.json, ARGV[9], ARGV[10])
redis.call('HDEL', K.delayed, run)
redis.call('ZREM', K.due, run)
log(K.log, now, ARGV[8], job, run, 'attempt', int(t.attempt), 'state', state, 'why', why)
return { 'lost' }
