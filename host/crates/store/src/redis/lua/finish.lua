-- Ends an attempt; the caller says what comes next, but a run whose end was asked for does not go on.
-- The run leaves the register last, so that a
-- repeat mends what a broken key interrupted.
-- KEYS    1-14 of the run, 15 state:<job>
-- ARGV    1 job, 2 run, 3 fence, 4 digest or '', 5 outcome (JSON), 6 its word, 7 'end' or 'again',
--         8 state | reason, 9 why (JSON), 10 '' | due in (ms), 11 '' | failures,
--         12 '' | idle yields, 13 state limit (bytes), 14 record kept for (ms), 15 runs kept,
--         16 number of state writes; for each: key, '1' to set or '0' to remove, value
-- Answers {finished, runs more than are kept…} | {already} | {fenced} | {too-large}
local job, run, fence, why, writes = ARGV[1], ARGV[2], ARGV[3], ARGV[9], tonumber(ARGV[16])
local r = running_of(redis.call('HGET', K.running, run))
local t = r and task_of(r.task)
if not t or r.fence ~= fence then return { was_closed('f', fence) and 'already' or 'fenced' } end
local size, before = 0, 0
if writes > 0 then size, before = state_size(KEYS[15], 17, writes) end
if size > before and size > tonumber(ARGV[13]) then return { 'too-large' } end
check_types()
local now, ends, state, surplus = now_ms(), ARGV[7] == 'end', ARGV[8], {}
if not ends and r.cancel ~= '' then
  ends, state, why = true, 'cancelled', cancelled_why(r.cancel)
end
if ends then
  surplus = end_run(job, run, now, state, why, t.json, ARGV[14], ARGV[15])
else
  local again = task_of(r.task)
  again.attempt, again.reason, again.failures, again.idle = t.attempt + 1, ARGV[8], ARGV[11], ARGV[12]
  delay(run, now + tonumber(ARGV[10]), why, task_text(again))
  redis.call('HSET', K.record, 'why', why)
end
close_attempt(r, t, now, 'f', ARGV[4], ARGV[5])
if writes > 0 then write_state(KEYS[15], 17, writes, size) end
if ARGV[6] == 'succeeded' then
  redis.call('HINCRBY', K.stats, 'successes', 1)
  -- A whole run: what it would take to run it again from nothing.
  local began = tonumber(redis.call('HGET', K.record, 'began') or r.claimed_at)
  redis.call('HINCRBY', K.stats, 'successes_ms', int(math.max(now - began, 0)))
  local previous = tonumber(redis.call('HGET', K.stats, 'previous'))
  if not previous or previous < tonumber(t.nominal) then
    redis.call('HSET', K.stats, 'previous', t.nominal)
  end
end
redis.call('HDEL', K.running, run)
unlock(run, fence)
log(K.log, now, ends and 'run.finished' or 'run.waiting', job, run, 'pod', r.pod, 'attempt', int(t.attempt),
  'fence', fence, 'outcome', ARGV[6], 'why', why)
table.insert(surplus, 1, 'finished')
return surplus
