-- For a store of before unfinished jobs lay by number: they are those that wait, are delayed or are claimed.
local pool = ARGV[1]
call('ZUNIONSTORE', key(pool, 'unfinished'), 3, key(pool, 'ready'), key(pool, 'delayed'), key(pool, 'leases'), 'WEIGHTS', 0, 0, 0)
