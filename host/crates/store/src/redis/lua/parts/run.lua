-- Verbs that move one run get these keys first, in this order (keys.rs: Keys::of_run).
local K = { scheduled = KEYS[1], running = KEYS[2], delayed = KEYS[3], due = KEYS[4], active = KEYS[5],
  log = KEYS[6], control = KEYS[7], lock = KEYS[8], record = KEYS[9], checkpoint = KEYS[10],
  lines = KEYS[11], runs = KEYS[12], parked = KEYS[13], stats = KEYS[14] }

-- Makes a run wait. `due` is nil for one that is parked. `why` is JSON.
local function delay(run, due, why, task)
  local at = due and int(due) or ''
  redis.call('HSET', K.delayed, run, at .. '|' .. why .. '|' .. task)
  if due then
    redis.call('ZADD', K.due, at, run)
    wake(K.control, '{"wake":"due"}')
  end
end

-- The run whose end the job's other runs wait for; one that no register knows holds nobody up.
local function active_of(job)
  local run = redis.call('HGET', K.active, job)
  if not run then return nil end
  for _, register in ipairs({ K.running, K.scheduled, K.delayed }) do
    if redis.call('HEXISTS', register, run) == 1 then return run end
  end
  return nil
end

-- Makes the job's first parked run due.
local function release_parked(now)
  while true do
    local first = redis.call('ZRANGE', K.parked, 0, 0)[1]
    if not first then return end
    redis.call('ZREM', K.parked, first)
    local run = string.sub(first, 3)
    local waits = delayed_of(redis.call('HGET', K.delayed, run))
    if waits then
      return delay(run, now, '"the run before it ended"', waits.task)
    end
  end
end

-- Gives up the run's place as the active one. Without one, nothing holds parked runs up.
local function clear_active(job, run, now)
  local active = redis.call('HGET', K.active, job)
  if active == run then
    redis.call('HDEL', K.active, job)
    active = false
  end
  if not active then release_parked(now) end
end

-- Ends a run: its record and what expires with it, and its place as the job's active run. To be
-- called before the run leaves its register, so that what a broken key interrupts can be repeated.
-- The first write frees, so that a full store takes it.
local function end_run(job, run, now, state, why, json, age, keep)
  local recorded = redis.call('PEXPIRE', K.record, age)
  redis.call('HSET', K.record, 'state', state, 'ended_at', int(now), 'why', why, 'task', json)
  if recorded == 0 then redis.call('PEXPIRE', K.record, age) end
  redis.call('PEXPIRE', K.lines, age)
  if state == 'succeeded' then
    redis.call('DEL', K.checkpoint)
  else
    redis.call('PEXPIRE', K.checkpoint, age)
  end
  redis.call('ZREMRANGEBYRANK', K.runs, 0, -(tonumber(keep) + 1))
  redis.call('HINCRBY', K.stats, state, 1)
  clear_active(job, run, now)
end

-- An entry of a run whose record says that it is over is a stray, and goes: it never runs again.
local function drop_stray(register, job, run, now)
  if redis.call('HEXISTS', K.record, 'state') == 0 then return false end
  redis.call('HDEL', register, run)
  clear_active(job, run, now)
  return true
end

-- Closes an attempt in the record. `how` says by whom, so that a repeat is known as one:
-- f its own finish, b a hand-back, l the recoverer. `outcome` is JSON. The latest hundred are kept.
local function close_attempt(r, task, now, how, digest, outcome)
  local n = int(task.attempt)
  local closed = (redis.call('HGET', K.record, 'closed') or '') .. how .. r.fence .. '|'
  redis.call('HSET', K.record, 'e' .. n, int(now) .. '|' .. digest .. '|' .. outcome,
    'closed', string.sub(closed, -240))
  if r.progress ~= '' then redis.call('HSET', K.record, 'progress', r.progress) end
  if task.attempt > 100 then
    local old = int(task.attempt - 100)
    redis.call('HDEL', K.record, 'a' .. old, 'e' .. old)
  end
end

local function was_closed(how, fence)
  local closed = redis.call('HGET', K.record, 'closed') or ''
  return string.find(closed, how .. fence .. '|', 1, true) ~= nil
end

-- Counts an attempt or a delivery that was lost with its pod, within a window in milliseconds.
local function count_recovery(now, window)
  local since = tonumber(redis.call('HGET', K.record, 'recovered_since'))
  if not since or now - since > tonumber(window) then
    redis.call('HSET', K.record, 'recoveries', 1, 'recovered_since', int(now))
  else
    redis.call('HINCRBY', K.record, 'recoveries', 1)
  end
end

local function unlock(run, fence)
  if holds(K.lock, run, fence) then redis.call('DEL', K.lock) end
end
