-- Stops a job's firings.
-- KEYS    1 schedules, 2 paused, 3 execution_log, 4 control, 5 changes
-- ARGV    1 job, 2 who and why (JSON), 3 by (JSON)
-- Answers {done} | {unchanged} | {unknown-job}
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return { 'unknown-job' } end
if redis.call('HEXISTS', KEYS[2], ARGV[1]) == 1 then return { 'unchanged' } end
redis.call('XLEN', KEYS[3])
local now = now_ms()
note_change(KEYS[5], ARGV[1], now)
redis.call('HSET', KEYS[2], ARGV[1], int(now) .. '|' .. ARGV[2])
log(KEYS[3], now, 'job.paused', ARGV[1], '', 'by', ARGV[3])
wake(KEYS[4], '{"wake":"jobs"}')
return { 'done' }
