-- Verbs that move one run get these keys first, in this order (keys.rs: Keys::of_run).
local K = { scheduled = KEYS[1], running = KEYS[2], delayed = KEYS[3], due = KEYS[4], active = KEYS[5],
  log = KEYS[6], control = KEYS[7], lock = KEYS[8], record = KEYS[9], checkpoint = KEYS[10],
  lines = KEYS[11], runs = KEYS[12], parked = KEYS[13], stats = KEYS[14] }

-- To be called before the first write: stops the script if a key has the wrong type, as nothing that
-- was written would be taken back. The lock is missing, since whoever takes it overwrites it.
local function check_types()
  for _, key in ipairs({ K.scheduled, K.running, K.delayed, K.active, K.record, K.checkpoint, K.stats }) do
    redis.call('HLEN', key)
  end
  for _, key in ipairs({ K.due, K.runs, K.parked }) do
    redis.call('ZCARD', key)
  end
  redis.call('XLEN', K.log)
  redis.call('XLEN', K.lines)
end

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
