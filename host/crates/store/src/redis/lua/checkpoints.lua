-- The kept checkpoints of a run, newest first.
-- KEYS    1 checkpoint:<run>
-- ARGV    none
-- Answers {sequence, schema|digest|attempt|fence|saved at, bytes, sequence, …}
local answer, last = {}, tonumber(redis.call('HGET', KEYS[1], 'seq'))
if not last then return answer end
for seq = last, math.max(last - 2, 1), -1 do
  local kept = redis.call('HMGET', KEYS[1], 'm' .. int(seq % 3), 'd' .. int(seq % 3))
  if kept[1] and kept[2] then
    local n = #answer
    answer[n + 1], answer[n + 2], answer[n + 3] = int(seq), kept[1], kept[2]
  end
end
return answer
