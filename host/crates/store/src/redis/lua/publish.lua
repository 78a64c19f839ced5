-- Applies the leader's decisions, each whole or not at all. What is refused holds the job's later
-- decisions of this call back: the cursor only moves over times that have their answer.
-- KEYS    1 leader, 2 leader:term, 3 paused, 4 quarantined, 5 cursor, 6 scheduled_tasks, 7 delivery,
--         8 subscribers, 9 execution_log; for each pod: pod:<address>, tasks:<address>;
--         for each fire: run:<run>, runs:<job>; for each gap: gaps:<job>, run:<run of from>
-- ARGV    1 address, 2 session, 3 term, 4 number of pods; their addresses; for each decision
--         F, job, nominal, after, run, number of its pod, task
--         | G, job, to, after, from, count, why (JSON), event, run of from
-- Answers {not-leader} | one for each decision: published, exists, no-pod, paused, quarantined,
--         early, deduped|cursor, held|cursor
if not leads(KEYS[1], KEYS[2]) then return { 'not-leader' } end
local now, key, arg, pods = now_ms(), 10, 5, {}
local delivery, counted = next_number(KEYS[7], now), false
redis.call('XLEN', KEYS[9])
redis.call('HLEN', KEYS[6])
for i = 1, tonumber(ARGV[4]) do
  redis.call('LLEN', KEYS[key + 1])
  pods[i] = { ARGV[arg], target_session(KEYS[key], KEYS[8], ARGV[arg]), KEYS[key + 1] }
  key, arg = key + 2, arg + 1
end
local function fire(job, nominal, run, pod, task, record, runs)
  if not pod[2] then return 'no-pod' end
  local known = redis.call('HGET', record, 'task')
  local waits = known and scheduled_of(redis.call('HGET', KEYS[6], run))
  if not known or waits then
    -- Room for every decision of the call: numbers may be left out, never given twice.
    if not counted then redis.call('SET', KEYS[7], int(delivery + 100)) end
    counted = true
    local as = int(delivery)
    redis.call('HSET', KEYS[6], run, scheduled_text(as, pod[1], pod[2], now, waits and waits.task or task))
    if not known then
      redis.call('HSET', record, 'task', string.match(task, '{.*$'), 'created_at', int(now))
      redis.call('ZADD', runs, int(now), run)
    end
    redis.call('RPUSH', pod[3], run .. '|' .. as)
    log(KEYS[9], now, 'run.published', job, run, 'pod', pod[1], 'delivery', as)
    delivery = delivery + 1
  end
  redis.call('HSET', KEYS[5], job, nominal)
  return known and 'exists' or 'published'
end
local function gap(job, to, from, count, why, event, run, gaps, record)
  -- A call that stopped half-way left a run for the first of the times: that is its answer.
  if redis.call('HEXISTS', KEYS[6], run) == 1 or redis.call('HEXISTS', record, 'task') == 1 then
    redis.call('HSET', KEYS[5], job, from)
    return 'held'
  end
  add_gap(gaps, now, from, to, count, why)
  redis.call('HSET', KEYS[5], job, to)
  log(KEYS[9], now, event, job, '', 'from', from, 'to', to, 'count', count, 'why', why)
  return 'published'
end
return decide_all(key, arg, pods, now, fire, gap)
