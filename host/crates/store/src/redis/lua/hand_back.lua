-- Gives a task back: one that was not claimed, or an attempt, which ends as lost. A run whose end was
-- asked for ends instead of going on.
-- KEYS    1-14 of the run, 15 pod:<address>, 16 claiming:<address>
-- ARGV    1 address, 2 session, 3 job, 4 run, 5 delivery or '', 6 fence or '', 7 '1' if it counts as
--         a recovery, 8 window of recoveries (ms), 9 why (JSON), 10 '1' to avoid this pod,
--         11 due in (ms), 12 outcome (JSON), 13 record kept for (ms), 14 runs kept
-- Answers {moved, runs more than are kept…} | {changed} | {superseded}
if is_current(KEYS[15], ARGV[2]) == false then return { 'superseded' } end
local job, run, fence, why = ARGV[3], ARGV[4], ARGV[6], ARGV[9]
local executes = fence ~= ''
local held, t
if executes then
  held = running_of(redis.call('HGET', K.running, run))
  if not held or held.fence ~= fence then
    return { was_closed('b', fence) and 'moved' or 'changed' }
  end
else
  held = scheduled_of(redis.call('HGET', K.scheduled, run))
  if not held then
    local waits = delayed_of(redis.call('HGET', K.delayed, run))
    return { waits and waits.why == why and 'moved' or 'changed' }
  end
  if held.delivery ~= ARGV[5] then return { 'changed' } end
end
t = task_of(held.task)
if not t or held.pod ~= ARGV[1] then return { 'changed' } end
check_types()
redis.call('LLEN', KEYS[16])
local now, attempt = now_ms(), int(t.attempt)
if ARGV[10] == '1' and not string.find('@' .. t.avoid .. '@', '@' .. ARGV[1] .. '@', 1, true) then
  t.avoid = t.avoid == '' and ARGV[1] or t.avoid .. '@' .. ARGV[1]
end
if executes then
  close_attempt(held, t, now, 'b', '', ARGV[12])
  if ARGV[7] == '1' then count_recovery(now, ARGV[8]) end
  t.attempt, t.reason = t.attempt + 1, 'resume'
end
local ends, surplus = executes and held.cancel ~= '', {}
if ends then
  why = cancelled_why(held.cancel)
  surplus = end_run(job, run, now, 'cancelled', why, t.json, ARGV[13], ARGV[14])
else
  delay(run, now + tonumber(ARGV[11]), why, task_text(t))
end
if executes then
  redis.call('HDEL', K.running, run)
  unlock(run, fence)
else
  redis.call('HDEL', K.scheduled, run)
  redis.call('LREM', KEYS[16], 0, run .. '|' .. held.delivery)
end
log(K.log, now, ends and 'run.finished' or 'run.waiting', job, run, 'pod', ARGV[1], 'attempt', attempt,
  'why', why)
table.insert(surplus, 1, 'moved')
return surplus
