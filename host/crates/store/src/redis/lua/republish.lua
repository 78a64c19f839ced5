-- Sends a run to another pod if it still is as the caller saw it. An attempt that lost its lock is
-- closed as lost, counted, and followed by the next one; the run stays its job's active one. One
-- whose end was asked for ends instead, whether or not there is a pod.
-- KEYS    1-14 of the run, 15 leader, 16 leader:term, 17 delivery, 18 subscribers,
--         19 pod:<address>, 20 tasks:<address>
-- ARGV    1 address, 2 session, 3 term, 4 job, 5 run, 6 delivery seen or '', 7 fence seen or '',
--         8 target's address, 9 why (JSON), 10 '1' if it counts as a recovery,
--         11 window of recoveries (ms), 12 outcome (JSON), 13 record kept for (ms), 14 runs kept
-- Answers {republished} | {cancelled, runs more than are kept…} | {changed} | {alive} | {no-pod} | {not-leader}
if not leads(KEYS[15], KEYS[16]) then return { 'not-leader' } end
local job, run, fence, to, why = ARGV[4], ARGV[5], ARGV[7], ARGV[8], ARGV[9]
local r = redis.call('HGET', K.running, run)
local entry
if fence ~= '' then
  entry = running_of(r)
  if not entry or entry.fence ~= fence then return { 'changed' } end
  if holds(K.lock, run, fence) then return { 'alive' } end
else
  entry = scheduled_of(redis.call('HGET', K.scheduled, run))
  if not entry or entry.delivery ~= ARGV[6] then return { 'changed' } end
  if r then
    redis.call('HDEL', K.scheduled, run) -- it executes: the other entry is a stray
    return { 'changed' }
  end
end
local now, t = now_ms(), task_of(entry.task)
if not t or drop_stray(r and K.running or K.scheduled, job, run, now) then return { 'changed' } end
if fence ~= '' and entry.cancel ~= '' then
  check_types()
  close_attempt(entry, t, now, 'l', '', ARGV[12])
  local cancelled = cancelled_why(entry.cancel)
  local surplus = end_run(job, run, now, 'cancelled', cancelled, t.json, ARGV[13], ARGV[14])
  redis.call('HDEL', K.running, run)
  log(K.log, now, 'run.finished', job, run, 'pod', entry.pod, 'attempt', int(t.attempt),
    'why', cancelled)
  table.insert(surplus, 1, 'cancelled')
  return surplus
end
local session = target_session(KEYS[19], KEYS[18], to)
if not session then return { 'no-pod' } end
check_types()
redis.call('LLEN', KEYS[20])
local delivery = int(next_number(KEYS[17], now))
redis.call('SET', KEYS[17], delivery)
if fence ~= '' then
  close_attempt(entry, t, now, 'l', '', ARGV[12])
  t.attempt, t.reason = t.attempt + 1, 'resume'
end
if ARGV[10] == '1' then count_recovery(now, ARGV[11]) end
redis.call('HSET', K.scheduled, run, scheduled_text(delivery, to, session, now, task_text(t)))
if fence ~= '' then redis.call('HDEL', K.running, run) end
redis.call('HSET', K.record, 'why', why)
redis.call('RPUSH', KEYS[20], run .. '|' .. delivery)
log(K.log, now, 'run.recovered', job, run, 'pod', to, 'from', entry.pod, 'attempt', int(t.attempt),
  'delivery', delivery, 'why', why)
return { 'republished' }
