-- How many jobs of a rate-limited group were claimed in the last period.
local pool, group, per = unpack(ARGV)
return call('ZCOUNT', key(pool, 'rate:' .. group), '(' .. int(now() - per), '+inf')
