-- needs: fence
-- The fence is judged in the script that writes, so nobody takes the lease in between.
local name, epoch, pool, thresholds, policy, paused = unpack(ARGV)
admit(name, epoch)
expect_pool(pool)
local row = key(pool, 'pool')
call('HSET', row, 'thresholds', thresholds, 'policy', policy)
if given(paused) then
  call('HSET', row, 'paused_until', paused)
else
  call('HDEL', row, 'paused_until')
end
return call('HGETALL', row)
