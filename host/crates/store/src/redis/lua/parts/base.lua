-- What every script uses. LOG_MAX stands before it.
local function int(n)
  return string.format('%.0f', n)
end

-- The store's clock in milliseconds.
local function now_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

-- The next number of a counter: never twice the same, even after a failover that lost writes.
local function next_number(key, now)
  return math.max((tonumber(redis.call('GET', key)) or 0) + 1, now)
end

-- Appends to the execution log.
local function log(key, now, event, job, run, ...)
  redis.call('XADD', key, 'MAXLEN', '~', LOG_MAX, '*', 'at', int(now), 'event', event,
    'job', job, 'run', run, ...)
end

-- A wake-up. Whoever may not publish loses only time, so an error does not stop the script.
local function wake(channel, text)
  redis.pcall('PUBLISH', channel, text)
end

-- What the session of a pod is to its hash: nil (nothing known), true (current), false (superseded).
local function is_current(pod, session)
  local known = redis.call('HGET', pod, 'session')
  if not known then return nil end
  return known == session
end
