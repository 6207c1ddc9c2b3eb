-- needs: fence, tell, moves
-- Record when a worker was reaped; a second call keeps the first time.
local name, epoch, pool, worker = unpack(ARGV)
admit(name, epoch)
local row = worker_key(pool, worker)
local status = call('HGET', row, 'status')
if not status then
  refuse('NotFound', 'there is no worker \'' .. worker .. '\' in pool \'' .. pool .. '\'; see: drumbeat workers list ' .. pool)
end
if is_live(status) then
  refuse('StaleWrite', 'worker ' .. worker .. ': expected an ended worker, got ' .. status .. '; end it first')
end
local at = now()
if call('HSETNX', row, 'reaped_at', int(at)) == 1 then note_reaped(pool, worker, at) end
