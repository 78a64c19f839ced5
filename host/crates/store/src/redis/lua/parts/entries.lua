-- The texts in the registers, as codec.rs writes and reads them. A field holds no bar; `why`,
-- `cancel` and `progress` are JSON with their bars escaped. The task's JSON is never looked into.
--   task       nominal|attempt|failures|idle_yields|reason|avoid|{json}
--   scheduled  delivery|pod|session|published_at|task
--   running    fence|pod|session|claimed_at|ends_by|token|cancel|progress|task
--   delayed    due|why|task
local function task_of(text)
  local n, a, f, i, r, v, json =
    string.match(text or '', '^(%d+)|(%d+)|(%d+)|(%d+)|([^|]+)|([^|]*)|({.+})$')
  if not n then return nil end
  return { nominal = n, attempt = tonumber(a), failures = f, idle = i, reason = r, avoid = v, json = json }
end

local function task_text(t)
  return table.concat({ t.nominal, int(t.attempt), t.failures, t.idle, t.reason, t.avoid, t.json }, '|')
end

local function scheduled_of(text)
  local d, pod, session, at, task =
    string.match(text or '', '^(%d+)|([^|]+)|([^|]+)|(%d+)|(.+)$')
  if not d then return nil end
  return { delivery = d, pod = pod, session = session, at = at, task = task }
end

local function scheduled_text(delivery, pod, session, now, task)
  return table.concat({ delivery, pod, session, int(now), task }, '|')
end

local function running_of(text)
  local f, pod, session, at, by, token, cancel, progress, task = string.match(text or '',
    '^(%d+)|([^|]+)|([^|]+)|(%d+)|(%d+)|([^|]+)|([^|]*)|([^|]*)|(.+)$')
  if not f then return nil end
  return { fence = f, pod = pod, session = session, claimed_at = at, ends_by = by, token = token,
    cancel = cancel, progress = progress, task = task }
end

local function running_text(r)
  return table.concat({ r.fence, r.pod, r.session, r.claimed_at, r.ends_by, r.token, r.cancel,
    r.progress, r.task }, '|')
end

local function delayed_of(text)
  local due, why, task = string.match(text or '', '^(%d*)|([^|]*)|(.+)$')
  if not due then return nil end
  return { due = due, why = why, task = task }
end

-- Whether the lock is held by this attempt: pod|session|run|fence|ttl.
local function holds(lock, run, fence)
  local text = redis.call('GET', lock)
  return text and string.find(text, '|' .. run .. '|' .. fence .. '|', 1, true) ~= nil
end
