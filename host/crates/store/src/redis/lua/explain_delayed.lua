-- Says why a delayed run still waits.
-- KEYS    1 leader, 2 leader:term, 3 delayed_tasks
-- ARGV    1 address, 2 session, 3 term, 4 run, 5 why (JSON)
-- Answers {done} | {unchanged}
if not leads(KEYS[1], KEYS[2]) then return { 'unchanged' } end
local entry = delayed_of(redis.call('HGET', KEYS[3], ARGV[4]))
if not entry or entry.why == ARGV[5] then return { 'unchanged' } end
redis.call('HSET', KEYS[3], ARGV[4], entry.due .. '|' .. ARGV[5] .. '|' .. entry.task)
return { 'done' }
