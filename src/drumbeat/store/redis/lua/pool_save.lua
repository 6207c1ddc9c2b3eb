-- needs: fence
-- The script that writes also checks the fence, so the lease cannot change hands in between.
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
