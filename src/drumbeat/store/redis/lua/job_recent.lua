-- How many jobs of a group with a rate were claimed within a time.
local pool, group, per = unpack(ARGV)
return call('ZCOUNT', key(pool, 'rate:' .. group), '(' .. int(now() - per), '+inf')
