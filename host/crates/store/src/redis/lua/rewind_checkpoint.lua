-- Makes an earlier one of the kept checkpoints the current one; later ones are gone. Not while the run
-- executes.
-- KEYS    1 running_tasks, 2 checkpoint:<run>, 3 execution_log
-- ARGV    1 job, 2 run, 3 sequence, 4 by (JSON)
-- Answers {rewound} | {none} (there is no such one) | {running}
if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1 then return { 'running' } end
local last, to = tonumber(redis.call('HGET', KEYS[2], 'seq')), tonumber(ARGV[3])
if not last or to > last or to <= last - 3 or to < 1 then return { 'none' } end
if redis.call('HEXISTS', KEYS[2], 'm' .. int(to % 3)) == 0 then return { 'none' } end
redis.call('XLEN', KEYS[3])
for seq = to + 1, last do
  redis.call('HDEL', KEYS[2], 'm' .. int(seq % 3), 'd' .. int(seq % 3))
end
redis.call('HSET', KEYS[2], 'seq', int(to))
log(KEYS[3], now_ms(), 'checkpoint.rewound', ARGV[1], ARGV[2], 'seq', int(to), 'by', ARGV[4])
return { 'rewound' }
