-- needs: fence
-- Only what is given is written. A policy that is another than the one that was read is left, and all else with it: nothing is
-- answered, and whoever asked reads it again.
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
