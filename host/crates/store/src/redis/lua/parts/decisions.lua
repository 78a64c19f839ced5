-- Walks through the decisions of a publish call (see there) in order.
local EARLY = 2000

local function job_state(name)
  return { cursor = tonumber(redis.call('HGET', KEYS[5], name)),
    stop = redis.call('HEXISTS', KEYS[3], name) == 1 and 'paused'
      or redis.call('HEXISTS', KEYS[4], name) == 1 and 'quarantined' }
end

-- Why a decision may not be applied, or nil. A job without a cursor has yet to be opened; a cursor
-- before the one that the decision was made from lost writes in a failover; a gap that begins before
-- the cursor was decided from an old view.
local function refusal(job, nominal, after, from, now)
  if job.cursor and nominal <= job.cursor then return 'deduped' end
  if not job.cursor or job.held or job.cursor < after then return 'held' end
  if from then
    if from <= job.cursor then return 'held' end
  elseif job.stop then
    return job.stop
  end
  return nominal > now + EARLY and 'early' or nil
end

local function decide_all(key, arg, pods, now, fire, gap)
  local answers, jobs = {}, {}
  while ARGV[arg] do
    local fires, name, at = ARGV[arg] == 'F', ARGV[arg + 1], ARGV[arg + 2]
    local job = jobs[name] or job_state(name)
    jobs[name] = job
    local from = not fires and tonumber(ARGV[arg + 4]) or nil
    local answer = refusal(job, tonumber(at), tonumber(ARGV[arg + 3]), from, now)
    if answer then
      job.held = job.held or answer ~= 'deduped'
    elseif fires then
      answer = fire(name, at, ARGV[arg + 4], pods[tonumber(ARGV[arg + 5])], ARGV[arg + 6],
        KEYS[key], KEYS[key + 1])
    else
      answer = gap(name, at, ARGV[arg + 4], ARGV[arg + 5], ARGV[arg + 6], ARGV[arg + 7],
        ARGV[arg + 8], KEYS[key], KEYS[key + 1])
      if answer == 'held' then job.cursor, job.held = from, true end
    end
    if answer == 'published' or answer == 'exists' then
      job.cursor = tonumber(at)
    elseif answer == 'no-pod' then
      job.held = true
    elseif answer == 'deduped' or answer == 'held' then
      answer = answer .. '|' .. int(job.cursor or 0)
    end
    answers[#answers + 1] = answer
    key, arg = key + 2, arg + (fires and 7 or 9)
  end
  return answers
end
