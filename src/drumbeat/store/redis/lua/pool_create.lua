-- Check and create in one script, so a pool is created once. Returns nothing while a pool of this name is being deleted.
local pool, kind, thresholds, policy, paused = unpack(ARGV)
local row = key(pool, 'pool')
if call('EXISTS', row) == 1 then
  refuse('AlreadyExists', 'pool ' .. pool .. ' already exists; choose another name')
end
if call('EXISTS', key(pool, 'deleted')) == 1 then return nil end
call('HSET', row, 'pool_id', pool, 'kind', kind, 'thresholds', thresholds, 'policy', policy, 'created_at', int(now()))
if given(paused) then call('HSET', row, 'paused_until', paused) end
call('ZADD', prefix .. 'pools', call('INCR', prefix .. 'pool_count'), pool)
return call('HGETALL', row)
