-- Saves a checkpoint of an attempt that holds its job's lock. Progress forgives earlier recoveries.
-- KEYS    1 running_tasks, 2 lock:<job>, 3 checkpoint:<run>, 4 run:<run>, 5 execution_log
-- ARGV    1 job, 2 run, 3 fence, 4 sequence, 5 schema|digest|attempt, 6 bytes
-- Answers {saved, sequence} | {fenced}
local run, fence, seq = ARGV[2], ARGV[3], tonumber(ARGV[4])
local r = running_of(redis.call('HGET', KEYS[1], run))
if not r or r.fence ~= fence or not holds(KEYS[2], run, fence) then return { 'fenced' } end
local last = tonumber(redis.call('HGET', KEYS[3], 'seq')) or 0
if seq <= last then
  local what = redis.call('HGET', KEYS[3], 'm' .. int(last % 3)) or ''
  -- The same request again, or an older one that comes late.
  if string.match(what, '^%d+|%x*|%d+|(%d+)|') == fence then return { 'saved', int(seq) } end
  seq = last + 1
end
redis.call('XLEN', KEYS[5])
local now, slot = now_ms(), int(seq % 3)
redis.call('HSET', KEYS[3], 'd' .. slot, ARGV[6], 'm' .. slot,
  ARGV[5] .. '|' .. fence .. '|' .. int(now), 'seq', int(seq))
redis.call('HDEL', KEYS[4], 'recoveries', 'recovered_since')
log(KEYS[5], now, 'checkpoint.saved', ARGV[1], run, 'fence', fence, 'seq', int(seq), 'bytes', #ARGV[6])
return { 'saved', int(seq) }
