-- needs: tell, moves
-- The rows of a pool's workers, or of its live ones, in the order of their making; those gone before a time are left out.
local pool, which, since = ARGV[1], ARGV[2], given(ARGV[3])
local rows = {}
for _, worker in ipairs(call('ZRANGE', key(pool, which), 0, -1)) do
  local row = worker_key(pool, worker)
  local gone = since and call('HGET', row, 'reaped_at')
  if not gone or tonumber(gone) >= tonumber(since) then rows[#rows + 1] = call('HGETALL', row) end
end
return rows
