-- Writes to a job's state for an attempt that holds the job's lock.
-- KEYS    1 running_tasks, 2 lock:<job>, 3 state:<job>
-- ARGV    1 run, 2 fence, 3 limit (bytes), 4 key, 5 '1' to set or '0' to remove, 6 value
-- Answers {written} | {fenced} | {too-large}
local r = running_of(redis.call('HGET', KEYS[1], ARGV[1]))
if not r or r.fence ~= ARGV[2] or not holds(KEYS[2], ARGV[1], ARGV[2]) then return { 'fenced' } end
local size, before = state_size(KEYS[3], 4, 1)
if size > before and size > tonumber(ARGV[3]) then return { 'too-large' } end
write_state(KEYS[3], 4, 1, size)
return { 'written' }
