-- Jobs that changed, each by the number of its latest change; the empty name by the latest number that
-- was dropped, or that was given before the list began.
local CHANGES_KEPT = 20000

-- Notes that what the leader decides from changed for a job. Goes first among the writes of a script,
-- since a change that is noted and not made does no harm.
local function note_change(key, job, now)
  local top = tonumber(redis.call('ZREVRANGE', key, 0, 0, 'WITHSCORES')[2])
  local number = math.max((top or 0) + 1, now)
  if not redis.call('ZSCORE', key, '') then redis.call('ZADD', key, int(number - 1), '') end
  redis.call('ZADD', key, int(number), job)
  while redis.call('ZCARD', key) > CHANGES_KEPT + 1 do
    local oldest = redis.call('ZRANGE', key, 1, 1, 'WITHSCORES')
    redis.call('ZADD', key, int(tonumber(oldest[2])), '')
    redis.call('ZREM', key, oldest[1])
  end
end

