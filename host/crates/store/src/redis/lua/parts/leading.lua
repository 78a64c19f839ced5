-- Whether the caller leads: ARGV 1 its address, 2 its session, 3 its term.
local function leads(leader, term)
  if redis.call('GET', leader) ~= ARGV[1] then return false end
  local held = redis.call('HMGET', term, 'term', 'holder')
  return held[1] == ARGV[3] and held[2] == ARGV[1] .. '|' .. ARGV[2]
end

-- The session of a pod that may be given a task, or nil: it lives and does not leave.
local function target_session(pod, subscribers, address)
  local said = redis.call('HMGET', pod, 'session', 'draining', 'left')
  if not said[1] or said[2] == '1' or said[3] then return nil end
  return redis.call('ZSCORE', subscribers, address) and said[1]
end

-- Keeps a gap; the oldest go. `why` is JSON.
local function add_gap(key, now, from, to, count, why)
  redis.call('ZADD', key, to, '{"from":' .. from .. ',"to":' .. to .. ',"count":' .. count .. ',"why":' .. why .. '}')
  redis.call('ZREMRANGEBYSCORE', key, '-inf', '(' .. int(now - 90 * 86400000))
  redis.call('ZREMRANGEBYRANK', key, 0, -1001)
end
