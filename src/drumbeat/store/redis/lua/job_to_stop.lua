-- needs: jobs
-- The jobs of a worker that are to be cancelled, each as number, id or nil, and epoch. Writes nothing.
local found = {}
for _, number in ipairs(call('SMEMBERS', held_key(ARGV[1]))) do
  local row = call('HMGET', job_key(number), 'cancel', 'id', 'epoch')
  if row[1] then found[#found + 1] = {number, row[2], row[3]} end
end
return found
