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

-- Ends a run: its record and what expires with it, and its place as the job's active run. To be
-- called before the run leaves its register, so that what a broken key interrupts can be repeated.
-- The first write frees, so that a full store takes it. Answers the job's runs that are more than it
-- keeps: they are off its list, and the caller drops what is left of them.
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
  local more, surplus = redis.call('ZCARD', K.runs) - tonumber(keep), {}
  if more > 0 then surplus = redis.call('ZRANGE', K.runs, 0, math.min(more, 100) - 1) end
  for _, old in ipairs(surplus) do
    redis.call('ZREM', K.runs, old)
  end
  redis.call('HINCRBY', K.stats, state, 1)
  clear_active(job, run, now)
  return surplus
end

-- Why a run ended whose end was asked for: JSON of the JSON of who asked.
local function cancelled_why(by)
  return '"cancelled by ' .. string.sub(by, 2)
end

-- An entry of a run whose record says that it is over is a stray, and goes: it never runs again.
local function drop_stray(register, job, run, now)
  if redis.call('HEXISTS', K.record, 'state') == 0 then return false end
  redis.call('HDEL', register, run)
  clear_active(job, run, now)
  return true
end
