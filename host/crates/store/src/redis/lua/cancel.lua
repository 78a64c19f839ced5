-- Asks for the end of a run; ends it at once if it does not execute.
-- KEYS    1-14 of the run
-- ARGV    1 job, 2 run, 3 by (JSON), 4 why (JSON), 5 record kept for (ms), 6 runs kept
-- Answers {requested} | {ended} | {already-ended} | {unknown}
local job, run, why = ARGV[1], ARGV[2], ARGV[4]
local now = now_ms()
check_types()
local r = running_of(redis.call('HGET', K.running, run))
if r then
  if r.cancel == '' then
    r.cancel = ARGV[3]
    redis.call('HSET', K.running, run, running_text(r))
    log(K.log, now, 'run.cancel-requested', job, run, 'by', ARGV[3])
  end
  wake(K.control, '{"wake":"cancel","run":"' .. run .. '"}')
  return { 'requested' }
end
local known = redis.call('HMGET', K.record, 'task', 'state', 'why')
if known[2] then
  -- A repeat by the same person is told what the first call was told.
  return { known[2] == 'cancelled' and known[3] == why and 'ended' or 'already-ended' }
end
local s = scheduled_of(redis.call('HGET', K.scheduled, run))
local d = delayed_of(redis.call('HGET', K.delayed, run))
local t = task_of((s or d or {}).task)
local json = t and t.json or known[1]
if not json then return { 'unknown' } end
redis.call('ZREM', K.parked, 's|' .. run, 'k|' .. run)
end_run(job, run, now, 'cancelled', why, json, ARGV[5], ARGV[6])
redis.call('HDEL', K.scheduled, run)
redis.call('HDEL', K.delayed, run)
redis.call('ZREM', K.due, run)
log(K.log, now, 'run.finished', job, run, 'outcome', 'cancelled', 'why', why)
return { 'ended' }
