-- Sets the leader's lease to its full length if the caller still holds it.
-- KEYS    1 leader, 2 leader:term
-- ARGV    1 address, 2 session, 3 term, 4 ttl (ms)
-- Answers {renewed} | {lost}
if not leads(KEYS[1], KEYS[2]) then return { 'lost' } end
redis.call('PEXPIRE', KEYS[1], ARGV[4])
-- How long it may last at most. A full store takes no new figure, but the lease lasts.
if redis.call('HGET', KEYS[2], 'ttl') ~= ARGV[4] then
  redis.pcall('HSET', KEYS[2], 'ttl', ARGV[4])
end
return { 'renewed' }
