-- needs: fence, tell, moves
-- The new metadata is merged within the script, so no concurrent change is lost.
local name, epoch, pool, worker, reference, meta = unpack(ARGV)
admit(name, epoch)
local row = worker_key(pool, worker)
if not call('HGET', row, 'status') then
  refuse('NotFound', 'no worker ' .. worker .. ' in pool ' .. pool .. '; list the pool\'s workers to see which there are')
end
call('HSET', row, 'provider_ref', reference, 'meta', merged(call('HGET', row, 'meta') or '{}', meta))
