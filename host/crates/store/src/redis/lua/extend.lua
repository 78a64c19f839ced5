-- Extends the locks of a pod's attempts.
-- KEYS    1 pod:<address>, 2 running_tasks; for each attempt: lock:<job>
-- ARGV    1 address, 2 session, 3 lock ttl (ms); for each attempt: run, fence
-- Answers one for each attempt: extended, lost, expired, cancel|by (JSON)
local superseded = is_current(KEYS[1], ARGV[2]) == false
local now, answers = now_ms(), {}
local function extend(lock, run, fence)
  local r = running_of(redis.call('HGET', KEYS[2], run))
  if not r or r.fence ~= fence then return 'lost' end
  local mine = table.concat({ ARGV[1], ARGV[2], run, fence, '' }, '|')
  local held = redis.call('GET', lock)
  if not held or string.sub(held, 1, #mine) ~= mine then return 'lost' end
  if now > tonumber(r.ends_by) then return 'expired' end
  redis.call('PEXPIRE', lock, ARGV[3])
  -- Its text says how long it may last at most. A full store takes no new text, but the lock lasts.
  if held ~= mine .. ARGV[3] then
    redis.pcall('SET', lock, mine .. ARGV[3], 'PX', ARGV[3])
  end
  return r.cancel == '' and 'extended' or 'cancel|' .. r.cancel
end
for i = 3, #KEYS do
  local arg = 2 * i - 2
  answers[i - 2] = superseded and 'lost' or extend(KEYS[i], ARGV[arg], ARGV[arg + 1])
end
return answers
