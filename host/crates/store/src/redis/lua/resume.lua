-- Lets a paused job fire again. The times up to `to` were counted by the caller from the cursor it
-- saw: should that have moved, it counts again.
-- KEYS    1 schedules, 2 paused, 3 cursor, 4 gaps:<job>, 5 execution_log, 6 control, 7 changes
-- ARGV    1 job, 2 cursor it saw or '', 3 to (ms), 4 count, 5 by (JSON)
-- Answers {done} | {unchanged} | {unknown-job} | {changed}
local job = ARGV[1]
if redis.call('HEXISTS', KEYS[1], job) == 0 then return { 'unknown-job' } end
if redis.call('HEXISTS', KEYS[2], job) == 0 then return { 'unchanged' } end
local cursor = redis.call('HGET', KEYS[3], job) or ''
if cursor ~= ARGV[2] then return { 'changed' } end
redis.call('XLEN', KEYS[5])
local now, from, to = now_ms(), tonumber(cursor), tonumber(ARGV[3])
note_change(KEYS[7], job, now)
if from and from < to then
  add_gap(KEYS[4], now, int(from + 1), int(to), ARGV[4], '"paused"')
  log(KEYS[5], now, 'firing.skipped', job, '', 'from', int(from + 1), 'to', int(to), 'count', ARGV[4],
    'why', '"paused"')
end
if not from or from < to then redis.call('HSET', KEYS[3], job, int(to)) end
redis.call('HDEL', KEYS[2], job)
log(KEYS[5], now, 'job.resumed', job, '', 'by', ARGV[5])
wake(KEYS[6], '{"wake":"jobs"}')
return { 'done' }
