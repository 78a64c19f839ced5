-- Ends a cron firing without an attempt.
-- KEYS    1-14 of the run, 15 pod:<address>, 16 claiming:<address>
-- ARGV    1 address, 2 session, 3 job, 4 run, 5 delivery, 6 why (JSON), 7 record kept for (ms),
--         8 runs kept
-- Answers {moved, runs more than are kept…} | {changed} | {superseded}
if is_current(KEYS[15], ARGV[2]) == false then return { 'superseded' } end
local job, run = ARGV[3], ARGV[4]
local s = scheduled_of(redis.call('HGET', K.scheduled, run))
if not s then
  local ended = redis.call('HMGET', K.record, 'state', 'why')
  return { ended[1] == 'skipped' and ended[2] == ARGV[6] and 'moved' or 'changed' }
end
local t = task_of(s.task)
if not t or s.delivery ~= ARGV[5] or s.pod ~= ARGV[1] then return { 'changed' } end
if t.attempt > 1 or t.reason ~= 'scheduled' then return { 'changed' } end
check_types()
redis.call('LLEN', KEYS[16])
local now = now_ms()
local surplus = end_run(job, run, now, 'skipped', ARGV[6], t.json, ARGV[7], ARGV[8])
redis.call('HDEL', K.scheduled, run)
redis.call('LREM', KEYS[16], 0, run .. '|' .. s.delivery)
log(K.log, now, 'run.skipped', job, run, 'pod', ARGV[1], 'why', ARGV[6])
table.insert(surplus, 1, 'moved')
return surplus
