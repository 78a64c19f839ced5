-- Who holds some jobs' locks. A lock without an end, or one that a clock stepping back made long, is
-- cut to its own ttl, the last part of its text.
-- KEYS    lock:<job>, 1,000 at most
-- Answers for each: text or '', ms left
local answer = {}
for i, lock in ipairs(KEYS) do
  local text = redis.call('GET', lock)
  local left = text and redis.call('PTTL', lock) or 0
  local longest = text and tonumber(string.match(text, '|(%d+)$')) or 60000
  if text and (left < 0 or left > longest) then
    left = math.max(longest, 1)
    redis.call('PEXPIRE', lock, int(left))
  end
  answer[2 * i - 1], answer[2 * i] = text or '', int(left)
end
return answer
