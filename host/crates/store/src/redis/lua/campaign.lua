-- Takes the leader's lease if it is free.
-- KEYS    1 leader, 2 leader:term, 3 execution_log
-- ARGV    1 address, 2 session, 3 ttl (ms)
-- Answers {won, term} | {held, address, ms left}
local now = now_ms()
local me = ARGV[1] .. '|' .. ARGV[2]
local by = redis.call('GET', KEYS[1])
local held = redis.call('HMGET', KEYS[2], 'term', 'holder', 'ttl')
if by and by == ARGV[1] and held[1] and held[2] == me then
  redis.call('HSET', KEYS[2], 'ttl', ARGV[3])
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  return { 'won', held[1] }
end
if by then
  -- A lease without an end, or one that a clock stepping back made long, must not last.
  local left = redis.call('PTTL', KEYS[1])
  local longest = tonumber(held[3]) or tonumber(ARGV[3])
  if left < 0 or left > longest then
    redis.call('PEXPIRE', KEYS[1], int(longest))
    left = longest
  end
  return { 'held', by, int(left) }
end
local term = int(math.max((tonumber(held[1]) or 0) + 1, now))
redis.call('HSET', KEYS[2], 'term', term, 'holder', me, 'since', int(now), 'ttl', ARGV[3])
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])
log(KEYS[3], now, 'leader.won', '', '', 'pod', ARGV[1], 'term', term)
return { 'won', term }
