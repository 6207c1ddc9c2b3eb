-- needs: fence
-- Number and store a beat in one script, and drop the pool's oldest beats.
local name, epoch, pool, body, most = unpack(ARGV)
admit(name, epoch)
expect_pool(pool)
local at, number = int(now()), call('HINCRBY', key(pool, 'pool'), 'last_beat', 1)
call('XADD', key(pool, 'beats'), 'MAXLEN', '~', most, int(number) .. '-0', 'at', at, 'body', body)
return {number, at}
