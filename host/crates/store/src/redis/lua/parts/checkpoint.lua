-- The latest of the kept checkpoints: {sequence, what it is, bytes}, or nil.
-- Three are kept, each at its sequence modulo three.
local function checkpoint_of(key)
  local seq = redis.call('HGET', key, 'seq')
  if not seq then return nil end
  local slot = int(tonumber(seq) % 3)
  local kept = redis.call('HMGET', key, 'm' .. slot, 'd' .. slot)
  if not kept[1] or not kept[2] then return nil end
  return { seq, kept[1], kept[2] }
end
