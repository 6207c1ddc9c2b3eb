-- needs: tell, moves
-- One worker's row.
local row = call('HGETALL', worker_key(ARGV[1], ARGV[2]))
if #row == 0 then
  refuse('NotFound', 'no worker ' .. ARGV[2] .. ' in pool ' .. ARGV[1] .. '; list the pool\'s workers to see which there are')
end
return row
