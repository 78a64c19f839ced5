-- Lets an unclaimed task wait for the end of the job's active run.
-- KEYS    1-14 of the run, 15 pod:<address>, 16 claiming:<address>
-- ARGV    1 address, 2 session, 3 job, 4 run, 5 delivery, 6 how many that may be skipped may wait
-- Answers {parked} | {full} | {changed}
if is_current(KEYS[15], ARGV[2]) == false then return { 'changed' } end
local job, run = ARGV[3], ARGV[4]
local s = scheduled_of(redis.call('HGET', K.scheduled, run))
if not s then
  return { redis.call('HEXISTS', K.delayed, run) == 1 and 'parked' or 'changed' }
end
local t = task_of(s.task)
if not t or s.delivery ~= ARGV[5] or s.pod ~= ARGV[1] then return { 'changed' } end
check_types()
redis.call('LLEN', KEYS[16])
local now, active = now_ms(), active_of(job)
local skippable = t.attempt == 1 and t.reason == 'scheduled'
if active and active ~= run then
  if skippable then
    local waiting = 0
    for _, member in ipairs(redis.call('ZRANGE', K.parked, 0, 999)) do
      if string.sub(member, 1, 2) == 's|' then waiting = waiting + 1 end
    end
    if waiting >= tonumber(ARGV[6]) then return { 'full' } end
  end
  delay(run, nil, '"waits for the end of ' .. active .. '"', s.task)
  redis.call('ZADD', K.parked, t.nominal, (skippable and 's|' or 'k|') .. run)
else
  delay(run, now, '"the run before it ended"', s.task)
end
redis.call('HDEL', K.scheduled, run)
redis.call('LREM', KEYS[16], 0, run .. '|' .. s.delivery)
log(K.log, now, 'run.waiting', job, run, 'why', '"the job still runs"')
return { 'parked' }
