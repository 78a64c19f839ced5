-- Removes a job's schedule and everything decided from it. Records, statistics and state stay, so
-- that a file that comes back finds them.
-- KEYS    1 leader, 2 leader:term, 3 schedules, 4 cursor, 5 waiting, 6 paused, 7 quarantined,
--         8 gaps:<job>, 9 execution_log, 10 control, 11 changes
-- ARGV    1 address, 2 session, 3 term, 4 job
-- Answers {done} | {unchanged} (not the leader) | {unknown-job}
if not leads(KEYS[1], KEYS[2]) then return { 'unchanged' } end
if redis.call('HEXISTS', KEYS[3], ARGV[4]) == 0 then return { 'unknown-job' } end
redis.call('XLEN', KEYS[9])
local now = now_ms()
note_change(KEYS[11], ARGV[4], now)
for i = 3, 7 do
  redis.call('HDEL', KEYS[i], ARGV[4])
end
redis.call('DEL', KEYS[8])
log(KEYS[9], now, 'job.retired', ARGV[4], '')
wake(KEYS[10], '{"wake":"jobs"}')
return { 'done' }
