-- needs: fence
-- Write only the given fields. If the policy has changed since the caller read it, write nothing and return nothing: the caller
-- reads the pool again.
local name, epoch, pool, thresholds, resumed, paused, was, policy = unpack(ARGV)
admit(name, epoch)
expect_pool(pool)
local row = key(pool, 'pool')
if given(policy) and call('HGET', row, 'policy') ~= was then return {} end
if given(policy) then call('HSET', row, 'policy', policy) end
if given(thresholds) then call('HSET', row, 'thresholds', thresholds) end
if given(paused) then call('HSET', row, 'paused_until', paused) end
if resumed == '1' then call('HDEL', row, 'paused_until') end
return call('HGETALL', row)
