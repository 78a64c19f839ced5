-- Marks a pod as alive now and keeps its load. One that has left stays off the subscribers,
-- however late this arrives.
-- KEYS    1 pod:<address>, 2 subscribers
-- ARGV    1 address, 2 session, 3 load (JSON), 4 '1' if draining, 5 kept for (ms)
-- Answers {current, now} | {asked-to-leave, now, by (JSON)} | {superseded} | {unknown}
local current = is_current(KEYS[1], ARGV[2])
if current == nil then return { 'unknown' } end
if not current then return { 'superseded' } end
local now = int(now_ms())
if redis.call('HEXISTS', KEYS[1], 'left') == 0 then
  redis.call('ZADD', KEYS[2], now, ARGV[1])
end
local leave = redis.call('HGET', KEYS[1], 'leave')
redis.call('HSET', KEYS[1], 'load', ARGV[3], 'draining', leave and '1' or ARGV[4])
redis.call('PEXPIRE', KEYS[1], ARGV[5])
if leave then return { 'asked-to-leave', now, leave } end
return { 'current', now }
