-- Replaces what a pod says of itself.
-- KEYS    1 pod:<address>
-- ARGV    1 session, 2 report (JSON), 3 its digest
-- Answers {current, now} | {superseded} | {unknown}
local current = is_current(KEYS[1], ARGV[1])
if current == nil then return { 'unknown' } end
if not current then return { 'superseded' } end
redis.call('HSET', KEYS[1], 'report', ARGV[2], 'digest', ARGV[3])
return { 'current', int(now_ms()) }
