-- Jobs that changed since a version of the view, the earliest change first.
-- KEYS    1 changes
-- ARGV    1 version, 2 how many jobs at most
-- Answers {jobs, version once they are read, job…} | {everything, version}
local since, limit = tonumber(ARGV[1]), tonumber(ARGV[2])
local top = tonumber(redis.call('ZREVRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2])
local dropped = tonumber(redis.call('ZSCORE', KEYS[1], ''))
-- A version from the future is one that a failover lost; what is not noted was never read.
if not top or not dropped or since < dropped or since > top then
  return { 'everything', int(top or 0) }
end
local found = redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. int(since), '+inf', 'WITHSCORES',
  'LIMIT', 0, limit)
local answer = { 'jobs', int(tonumber(found[#found]) or since) }
for i = 1, #found, 2 do
  answer[#answer + 1] = found[i]
end
return answer
