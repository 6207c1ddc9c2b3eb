-- needs: fence, tell, moves
-- The new metadata is merged within the script, so no concurrent change is lost.
local name, epoch, pool, worker, reference, meta = unpack(ARGV)
admit(name, epoch)
local row = worker_key(pool, worker)
if not call('HGET', row, 'status') then
  refuse('NotFound', 'there is no worker \'' .. worker .. '\' in pool \'' .. pool .. '\'; see: drumbeat workers list ' .. pool)
end
call('HSET', row, 'provider_ref', reference, 'meta', merged(call('HGET', row, 'meta') or '{}', meta))
