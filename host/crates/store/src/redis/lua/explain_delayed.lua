-- Says why a due run still waits, and puts it off, so that those behind it have their turn.
-- KEYS    1 leader, 2 leader:term, 3 delayed_tasks, 4 delayed_tasks:due
-- ARGV    1 address, 2 session, 3 term, 4 run, 5 why (JSON), 6 look again in (ms)
-- Answers {done} | {unchanged}
if not leads(KEYS[1], KEYS[2]) then return { 'unchanged' } end
local run, now = ARGV[4], now_ms()
local entry = delayed_of(redis.call('HGET', KEYS[3], run))
if not entry then return { 'unchanged' } end
redis.call('ZCARD', KEYS[4])
local due = entry.due
if due ~= '' and tonumber(due) <= now then due = int(now + tonumber(ARGV[6])) end
redis.call('HSET', KEYS[3], run, due .. '|' .. ARGV[5] .. '|' .. entry.task)
if due ~= entry.due then redis.call('ZADD', KEYS[4], due, run) end
return { 'done' }
