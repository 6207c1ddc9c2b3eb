-- needs: tell, moves
-- Migrate from layout 1: index one page of a pool's ended workers by end time. Returns how many workers the page had.
local pool, first, page = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local workers = call('ZRANGE', key(pool, 'workers'), first, first + page - 1)
for _, worker in ipairs(workers) do
  local ended, reaped = unpack(call('HMGET', worker_key(pool, worker), 'ended_at', 'reaped_at'))
  note_number(pool, worker)
  if ended then note_end(pool, worker, ended) end
  if reaped then note_reaped(pool, worker, reaped) end
end
return #workers
