-- needs: beats
-- Beats above a number and later than a time, oldest first.
local pool, after, since, limit = unpack(ARGV)
local beats = key(pool, 'beats')
local earlier = given(since) and beat_at(beats, tonumber(since))
if earlier then after = int(math.max(after, number_of(earlier))) end
return call('XRANGE', beats, '(' .. after .. '-0', '+', 'COUNT', limit)
