-- needs: fence, tell, moves
-- Record when a worker was reaped; a second call keeps the first time.
local name, epoch, pool, worker = unpack(ARGV)
admit(name, epoch)
local row = worker_key(pool, worker)
local status = call('HGET', row, 'status')
if not status then
  refuse('NotFound', 'no worker ' .. worker .. ' in pool ' .. pool .. '; list the pool\'s workers to see which there are')
end
if is_live(status) then
  refuse('StaleWrite', 'worker ' .. worker .. ': expected an ended one, got ' .. status .. '; move it to its end first')
end
local at = now()
if call('HSETNX', row, 'reaped_at', int(at)) == 1 then note_reaped(pool, worker, at) end
