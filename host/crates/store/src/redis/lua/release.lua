-- Ends a job's quarantine.
-- KEYS    1 schedules, 2 quarantined, 3 execution_log, 4 control, 5 changes
-- ARGV    1 job, 2 by (JSON)
-- Answers {done} | {unchanged} | {unknown-job}
redis.call('XLEN', KEYS[3])
if redis.call('HEXISTS', KEYS[2], ARGV[1]) == 0 then
  return { redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 and 'unchanged' or 'unknown-job' }
end
local now = now_ms()
note_change(KEYS[5], ARGV[1], now)
redis.call('HDEL', KEYS[2], ARGV[1])
log(KEYS[3], now, 'job.released', ARGV[1], '', 'by', ARGV[2])
wake(KEYS[4], '{"wake":"jobs"}')
return { 'done' }
