-- Moves due delayed runs into queues. Leaving the delayed runs is what makes it happen once.
-- KEYS    1 leader, 2 leader:term, 3 delayed_tasks, 4 delayed_tasks:due, 5 scheduled_tasks,
--         6 delivery, 7 subscribers, 8 execution_log; for each pod: pod:<address>, tasks:<address>
-- ARGV    1 address, 2 session, 3 term, 4 number of pods; their addresses; for each move
--         job, run, number of its pod
-- Answers {not-leader} | one for each move: promoted, changed, no-pod
if not leads(KEYS[1], KEYS[2]) then return { 'not-leader' } end
local now, arg, pods, answers = now_ms(), 5, {}, {}
redis.call('ZCARD', KEYS[4])
redis.call('HLEN', KEYS[5])
redis.call('XLEN', KEYS[8])
for i = 1, tonumber(ARGV[4]) do
  local pod, queue = KEYS[7 + 2 * i], KEYS[8 + 2 * i]
  redis.call('LLEN', queue)
  pods[i] = { ARGV[arg], target_session(pod, KEYS[7], ARGV[arg]), queue }
  arg = arg + 1
end
local delivery, counted = next_number(KEYS[6], now), false
local function promote(job, run, pod)
  local entry = delayed_of(redis.call('HGET', KEYS[3], run))
  if not entry then
    -- A repeat whose first answer was lost finds the run where the first one put it.
    local there = scheduled_of(redis.call('HGET', KEYS[5], run))
    return there and there.pod == pod[1] and there.session == pod[2] and 'promoted' or 'changed'
  end
  if entry.due == '' or tonumber(entry.due) > now then return 'changed' end
  if not pod[2] then return 'no-pod' end
  if not counted then redis.call('SET', KEYS[6], int(delivery + 1000)) end
  counted = true
  local as = int(delivery)
  redis.call('HSET', KEYS[5], run, scheduled_text(as, pod[1], pod[2], now, entry.task))
  redis.call('HDEL', KEYS[3], run)
  redis.call('ZREM', KEYS[4], run)
  redis.call('RPUSH', pod[3], run .. '|' .. as)
  log(KEYS[8], now, 'run.published', job, run, 'pod', pod[1], 'delivery', as)
  delivery = delivery + 1
  return 'promoted'
end
while ARGV[arg] do
  answers[#answers + 1] = promote(ARGV[arg], ARGV[arg + 1], pods[tonumber(ARGV[arg + 2])])
  arg = arg + 3
end
return answers
