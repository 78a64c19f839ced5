-- Puts a definition in force if the stored one is still the one the caller saw.
-- KEYS    1 leader, 2 leader:term, 3 schedules, 4 cursor, 5 gaps:<job>, 6 execution_log, 7 changes
-- ARGV    1 address, 2 session, 3 term, 4 job, 5 hash it saw or '', 6 hash, 7 since (ms),
--         8 stored definition (JSON), 9 nominal times that the change leaves unanswered, 10 why (JSON)
-- Answers {opened, cursor} | {changed} | {not-leader}
if not leads(KEYS[1], KEYS[2]) then return { 'not-leader' } end
local now, job = now_ms(), ARGV[4]
local hash, since = string.match(redis.call('HGET', KEYS[3], job) or '', '^([^|]*)|(%d+)|')
local cursor = tonumber(redis.call('HGET', KEYS[4], job))
if hash == ARGV[6] and since == ARGV[7] and cursor then return { 'opened', int(cursor) } end
if (hash or '') ~= ARGV[5] then return { 'changed' } end
redis.call('XLEN', KEYS[6])
note_change(KEYS[7], job, now)
-- A cursor in the future would answer times that nobody decided.
local from = math.min(tonumber(ARGV[7]), now)
if cursor and cursor < from then
  add_gap(KEYS[5], now, int(cursor + 1), int(from), ARGV[9], ARGV[10])
end
cursor = math.max(cursor or 0, from)
redis.call('HSET', KEYS[3], job, ARGV[6] .. '|' .. ARGV[7] .. '|' .. ARGV[8])
redis.call('HSET', KEYS[4], job, int(cursor))
log(KEYS[6], now, 'job.opened', job, '', 'hash', ARGV[6], 'cursor', int(cursor))
return { 'opened', int(cursor) }
