-- Sets the leader's lease to its full length if the caller still holds it.
-- KEYS    1 leader, 2 leader:term
-- ARGV    1 address, 2 session, 3 term, 4 ttl (ms)
-- Answers {renewed} | {lost}
if not leads(KEYS[1], KEYS[2]) then return { 'lost' } end
redis.call('HSET', KEYS[2], 'ttl', ARGV[4])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return { 'renewed' }
