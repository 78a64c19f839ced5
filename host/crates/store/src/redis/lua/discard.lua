-- Drops what is left of an ended run that its job keeps no more.
-- KEYS    1 run:<run>, 2 log:<run>, 3 checkpoint:<run>
-- ARGV    none
-- Answers {done} | {unchanged} (it is not over)
if redis.call('HEXISTS', KEYS[1], 'state') == 0 then return { 'unchanged' } end
redis.call('UNLINK', KEYS[1], KEYS[2], KEYS[3])
return { 'done' }
