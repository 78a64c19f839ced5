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
