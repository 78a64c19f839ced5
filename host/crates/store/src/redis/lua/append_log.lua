-- Appends lines to a run's log. The digest of the latest batch makes a repeat harmless.
-- KEYS    1 running_tasks, 2 log:<run>, 3 run:<run>
-- ARGV    1 run, 2 fence, 3 lines kept; then the lines (JSON)
-- Answers {written} | {fenced}
local r = running_of(redis.call('HGET', KEYS[1], ARGV[1]))
if not r or r.fence ~= ARGV[2] then return { 'fenced' } end
local digest = redis.sha1hex(table.concat(ARGV, '\n', 4))
if redis.call('HGET', KEYS[3], 'logged') == digest then return { 'written' } end
redis.call('XLEN', KEYS[2])
for i = 4, #ARGV do
  redis.call('XADD', KEYS[2], 'MAXLEN', ARGV[3], '*', 'line', ARGV[i])
end
redis.call('HSET', KEYS[3], 'logged', digest)
return { 'written' }
