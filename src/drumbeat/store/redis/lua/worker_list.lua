-- needs: tell, moves
-- The rows of a pool's workers, or of its live workers, in the order of their creation.
local rows = {}
for _, worker in ipairs(call('ZRANGE', key(ARGV[1], ARGV[2]), 0, -1)) do rows[#rows + 1] = call('HGETALL', worker_key(ARGV[1], worker)) end
return rows
