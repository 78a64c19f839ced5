-- The latest checkpoint of a run.
-- KEYS    1 checkpoint:<run>
-- Answers {sequence, schema|digest|attempt|fence|saved at, bytes} | {}
return checkpoint_of(KEYS[1]) or {}
