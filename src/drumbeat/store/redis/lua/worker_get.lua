-- needs: tell, moves
-- One worker's row.
local row = call('HGETALL', worker_key(ARGV[1], ARGV[2]))
if #row == 0 then
  refuse('NotFound', 'there is no worker \'' .. ARGV[2] .. '\' in pool \'' .. ARGV[1] .. '\'; see: drumbeat workers list ' .. ARGV[1])
end
return row
