-- Says why a job's due firing waits, or that none does.
-- KEYS    1 leader, 2 leader:term, 3 waiting
-- ARGV    1 address, 2 session, 3 term, 4 job, 5 waiting (JSON) or ''
-- Answers {done} | {unchanged}
if not leads(KEYS[1], KEYS[2]) then return { 'unchanged' } end
if ARGV[5] == '' then
  redis.call('HDEL', KEYS[3], ARGV[4])
else
  redis.call('HSET', KEYS[3], ARGV[4], ARGV[5])
end
return { 'done' }
