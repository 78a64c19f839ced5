-- Makes an entry an attempt: register, lock, active run and fence in one step.
-- KEYS    1-14 of the run, 15 pod:<address>, 16 claiming:<address>, 17 fence
-- ARGV    1 address, 2 session, 3 job, 4 run, 5 delivery, 6 token, 7 lock ttl (ms), 8 ends in (ms),
--         9 digest of the plugin or ''
-- Answers {claimed, fence, claimed at, task, previous success or '', sequence or '', what, bytes,
--         first claim of the run}
--         | {overlap, run} | {stale} | {superseded}
local address, session, job, run, token, ttl = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[6], ARGV[7]
if is_current(KEYS[15], session) == false then return { 'superseded' } end
local now, entry = now_ms(), run .. '|' .. ARGV[5]
local function drop(answer)
  redis.call('LREM', KEYS[16], 0, entry)
  return { answer }
end
local kept = checkpoint_of(K.checkpoint) or { '', '', '' }
local previous = redis.call('HGET', K.stats, 'previous') or ''
local function answer(r)
  local began = redis.call('HGET', K.record, 'began') or r.claimed_at
  return { 'claimed', r.fence, r.claimed_at, r.task, previous, kept[1], kept[2], kept[3], began }
end
local function lock(fence)
  redis.call('SET', K.lock, table.concat({ address, session, run, fence, ttl }, '|'), 'PX', ttl)
end
local r = redis.call('HGET', K.running, run)
if r then
  r = running_of(r)
  local mine = r and r.token == token and r.pod == address and r.session == session
  if not mine or (redis.call('EXISTS', K.lock) == 1 and not holds(K.lock, run, r.fence)) then
    return drop('stale')
  end
  lock(r.fence)
  drop()
  return answer(r)
end
local s = scheduled_of(redis.call('HGET', K.scheduled, run))
local t = s and task_of(s.task)
if not t or s.delivery ~= ARGV[5] or s.pod ~= address then return drop('stale') end
if drop_stray(K.scheduled, job, run, now) then return drop('stale') end
local active = active_of(job)
if active and active ~= run then return { 'overlap', active } end
check_types()
redis.call('LLEN', KEYS[16])
local fence = int(next_number(KEYS[17], now))
r = { fence = fence, pod = address, session = session, claimed_at = int(now),
  ends_by = int(now + tonumber(ARGV[8])), token = token, cancel = '', progress = '', task = s.task }
redis.call('SET', KEYS[17], fence)
redis.call('HSET', K.running, run, running_text(r))
redis.call('HDEL', K.scheduled, run)
redis.call('HSET', K.active, job, run)
lock(fence)
redis.call('LREM', KEYS[16], 0, entry)
redis.call('HSETNX', K.record, 'began', int(now))
redis.call('HSET', K.record, 'a' .. int(t.attempt),
  table.concat({ address, fence, t.reason, int(now), kept[1], ARGV[9] }, '|'))
log(K.log, now, 'run.claimed', job, run, 'pod', address, 'attempt', int(t.attempt), 'fence', fence)
return answer(r)
