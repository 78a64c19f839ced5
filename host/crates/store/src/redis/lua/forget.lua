-- Removes what is left of a pod that was silent for ten windows. That no register names it, the
-- caller has looked up; should one do so by now, its target counts as gone and it is moved.
-- KEYS    1 leader, 2 leader:term, 3 subscribers, 4 pods, 5 pod:<address>, 6 tasks:<address>,
--         7 claiming:<address>
-- ARGV    1 address, 2 session, 3 term, 4 the pod's address, 5 ten windows (ms)
-- Answers {forgotten} | {in-use} | {not-leader}
if not leads(KEYS[1], KEYS[2]) then return { 'not-leader' } end
local beat = tonumber(redis.call('ZSCORE', KEYS[3], ARGV[4]))
if beat and now_ms() - beat < tonumber(ARGV[5]) then return { 'in-use' } end
if not beat and redis.call('HEXISTS', KEYS[5], 'session') == 1
  and redis.call('HEXISTS', KEYS[5], 'left') == 0 then
  return { 'in-use' } -- registered just now, its first heartbeat comes
end
redis.call('ZREM', KEYS[3], ARGV[4])
redis.call('SREM', KEYS[4], ARGV[4])
redis.call('DEL', KEYS[5], KEYS[6], KEYS[7])
return { 'forgotten' }
