-- Asks a pod to leave the fleet. It gets nothing more from now on, and is told with its next heartbeat.
-- KEYS    1 pod:<address>, 2 execution_log
-- ARGV    1 address, 2 by (JSON)
-- Answers {asked} | {leaving} (it was asked before, or is leaving by itself) | {unknown}
local said = redis.call('HMGET', KEYS[1], 'session', 'draining', 'left')
if not said[1] then return { 'unknown' } end
if said[2] == '1' or said[3] then return { 'leaving' } end
redis.call('XLEN', KEYS[2])
redis.call('HSET', KEYS[1], 'leave', ARGV[2], 'draining', '1')
log(KEYS[2], now_ms(), 'pod.asked-to-leave', '', '', 'pod', ARGV[1], 'by', ARGV[2])
return { 'asked' }
