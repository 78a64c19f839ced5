-- Makes a run that somebody asks for due now. Backfilled ones go one by one: the first becomes the
-- job's active run, the others wait behind it in the order of their times.
-- KEYS    1-14 of the run, 15 schedules, 16 cursor, 17 idem:<key> (the record's key without one)
-- ARGV    1 job, 2 run, 3 task, 4 nominal time or '' for a manual run, 5 body digest or '',
--         6 digest kept for (ms), 7 why (JSON)
-- Answers {accepted} | {same, run} | {conflict, run} | {not-yet, cursor} | {exists} | {unknown-job}
local job, run, body = ARGV[1], ARGV[2], ARGV[5]
if body ~= '' then
  local digest, made = string.match(redis.call('GET', KEYS[17]) or '', '^([^|]*)|(.+)$')
  if digest then return { digest == body and 'same' or 'conflict', made } end
end
if redis.call('HEXISTS', KEYS[15], job) == 0 then return { 'unknown-job' } end
local cursor = tonumber(redis.call('HGET', KEYS[16], job)) or 0
if ARGV[4] ~= '' and tonumber(ARGV[4]) > cursor then return { 'not-yet', int(cursor) } end
if redis.call('HEXISTS', K.record, 'task') == 1 then
  -- The id of a manual run is random, so the same id is the same request.
  if ARGV[4] == '' then return { 'same', run } end
  return { 'exists' }
end
local now, t = now_ms(), task_of(ARGV[3])
check_types()
local in_turn = t and t.reason == 'backfill'
local active = in_turn and active_of(job)
if active then
  delay(run, nil, '"waits for the end of ' .. active .. '"', ARGV[3])
  redis.call('ZADD', K.parked, t.nominal, 'k|' .. run)
else
  if in_turn then redis.call('HSET', K.active, job, run) end
  delay(run, now, ARGV[7], ARGV[3])
end
redis.call('HSET', K.record, 'task', string.match(ARGV[3], '{.*$'), 'created_at', int(now))
redis.call('ZADD', K.runs, int(now), run)
if body ~= '' then redis.call('SET', KEYS[17], body .. '|' .. run, 'PX', ARGV[6]) end
log(K.log, now, 'run.submitted', job, run, 'why', ARGV[7])
return { 'accepted' }
