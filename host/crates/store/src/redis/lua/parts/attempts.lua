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
