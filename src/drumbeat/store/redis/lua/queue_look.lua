-- needs: jobs, lanes, claim
-- Whether anything is ready now, and what to wait for if not.
local pool, at = ARGV[1], now()
expect_pool(pool)
promote(pool, at)
return {call('ZCARD', key(pool, 'ready')), outlook(pool, at)}
