-- Delayed runs that are due, earliest first, and when the next one is.
-- KEYS    1 delayed_tasks, 2 delayed_tasks:due
-- ARGV    1 how many at most, up to 1,000
-- Answers {now, next due or '', run, entry or '', run, entry or '', …}
local now, limit = now_ms(), tonumber(ARGV[1])
local due = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', int(now), 'LIMIT', 0, limit)
local after = redis.call('ZRANGE', KEYS[2], #due, #due, 'WITHSCORES')
local answer = { int(now), after[2] and int(tonumber(after[2])) or '' }
for _, run in ipairs(due) do
  answer[#answer + 1] = run
  answer[#answer + 1] = redis.call('HGET', KEYS[1], run) or ''
end
return answer
