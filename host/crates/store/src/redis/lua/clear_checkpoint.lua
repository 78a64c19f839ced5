-- Removes a run's checkpoints unless it executes.
-- KEYS    1 running_tasks, 2 checkpoint:<run>, 3 execution_log
-- ARGV    1 job, 2 run, 3 by (JSON)
-- Answers {cleared} | {none} | {running}
if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1 then return { 'running' } end
redis.call('XLEN', KEYS[3])
if redis.call('DEL', KEYS[2]) == 0 then return { 'none' } end
log(KEYS[3], now_ms(), 'checkpoint.cleared', ARGV[1], ARGV[2], 'by', ARGV[3])
return { 'cleared' }
