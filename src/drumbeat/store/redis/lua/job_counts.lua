-- needs: jobs, lanes
-- Counts of a pool's jobs by state, from the sizes of its sets: ended jobs exactly, the others up to a limit.
local pool, at = ARGV[1], now()
promote(pool, at)
local ready, delayed, most = key(pool, 'ready'), key(pool, 'delayed'), tonumber(ARGV[2])
local counts = {call('ZCARD', ready) + call('ZCOUNT', delayed, '-inf', int(at)), call('ZCOUNT', delayed, '(' .. int(at), '+inf')}
for _, name in ipairs({'leases', 'done', 'poisoned', 'cancelled'}) do counts[#counts + 1] = call('ZCARD', key(pool, name)) end
for n = 1, 3 do counts[n] = math.min(counts[n], most) end
counts[7] = call('ZRANGE', ready, 0, 0, 'WITHSCORES')[2] or false
counts[8] = math.min(call('ZCARD', key(pool, 'waiting')), most)
local pruned = call('HMGET', key(pool, 'pool'), 'pruned_done', 'pruned_poisoned')
for n = 1, 2 do counts[8 + n] = counts[3 + n] + (tonumber(pruned[n]) or 0) end
return counts
