-- Migrate from layout 1: index unfinished jobs (ready, delayed, claimed) by number.
local pool = ARGV[1]
call('ZUNIONSTORE', key(pool, 'unfinished'), 3, key(pool, 'ready'), key(pool, 'delayed'), key(pool, 'leases'), 'WEIGHTS', 0, 0, 0)
