-- needs: tell, moves
-- The rows of the workers that ended last, the newest first.
local rows = {}
for _, worker in ipairs(call('ZREVRANGE', key(ARGV[1], 'ended'), 0, ARGV[2] - 1)) do
  rows[#rows + 1] = call('HGETALL', worker_key(ARGV[1], worker))
end
return rows
