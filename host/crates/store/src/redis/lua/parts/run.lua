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

-- Gives up the run's place as the active one, and that of one that no register knows any more.
-- Without an active run nothing holds parked ones up.
local function clear_active(job, run, now)
  local active = active_of(job)
  if active and active ~= run then return end
  redis.call('HDEL', K.active, job)
  release_parked(now)
end
