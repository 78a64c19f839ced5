-- The job's state: fields `k:<key>`, and `size`, the bytes of all keys and values.
-- The size after some writes and before them; the writes are given as (key, '1' or '0', value) from ARGV[from] on.
local function state_size(state, from, writes)
  local before = tonumber(redis.call('HGET', state, 'size')) or 0
  local size, seen = before, {}
  for i = from, from + 3 * writes - 1, 3 do
    local key = ARGV[i]
    local old = seen[key]
    if not old then
      local had = redis.call('HEXISTS', state, 'k:' .. key) == 1
      old = had and #key + redis.call('HSTRLEN', state, 'k:' .. key) or 0
    end
    local new = ARGV[i + 1] == '1' and #key + #ARGV[i + 2] or 0
    size, seen[key] = size - old + new, new
  end
  return size, before
end

local function write_state(state, from, writes, size)
  for i = from, from + 3 * writes - 1, 3 do
    if ARGV[i + 1] == '1' then
      redis.call('HSET', state, 'k:' .. ARGV[i], ARGV[i + 2])
    else
      redis.call('HDEL', state, 'k:' .. ARGV[i])
    end
  end
  if size > 0 then
    redis.call('HSET', state, 'size', int(size))
  else
    redis.call('DEL', state)
  end
end
