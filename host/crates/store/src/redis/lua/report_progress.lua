-- Keeps the newest progress report of an attempt.
-- KEYS    1 running_tasks
-- ARGV    1 run, 2 fence, 3 progress (JSON)
-- Answers {written} | {fenced}
local r = running_of(redis.call('HGET', KEYS[1], ARGV[1]))
if not r or r.fence ~= ARGV[2] then return { 'fenced' } end
r.progress = ARGV[3]
redis.call('HSET', KEYS[1], ARGV[1], running_text(r))
return { 'written' }
