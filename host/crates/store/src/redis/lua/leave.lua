-- Takes a pod off the subscribers, marks it as gone and drops its two lists.
-- KEYS    1 pod:<address>, 2 subscribers, 3 tasks:<address>, 4 claiming:<address>, 5 control
-- ARGV    1 address, 2 session
-- Answers {current, now} | {superseded}
local current = is_current(KEYS[1], ARGV[2])
if current == false then return { 'superseded' } end
redis.call('ZREM', KEYS[2], ARGV[1])
if current then redis.call('HSET', KEYS[1], 'left', '1', 'draining', '1') end
redis.call('DEL', KEYS[3], KEYS[4])
wake(KEYS[5], '{"wake":"left","pod":"' .. ARGV[1] .. '"}')
return { 'current', int(now_ms()) }
