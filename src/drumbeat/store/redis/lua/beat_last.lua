-- needs: beats
-- The newest beat, or the newest at or before a time; on request only beats with a view count.
local pool, before, seen = unpack(ARGV)
local beats = key(pool, 'beats')
local entry
if given(before) then entry = beat_at(beats, tonumber(before)) else entry = newest_of(beats) end
if seen == '1' then entry = last_that_saw(beats, entry) end
return entry and {entry} or {}
