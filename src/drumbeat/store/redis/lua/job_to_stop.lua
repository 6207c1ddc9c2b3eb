-- needs: jobs
-- What a worker holds that somebody has asked to be stopped; each as its number, its own id and its epoch. A look, no more.
local found = {}
for _, number in ipairs(call('SMEMBERS', held_key(ARGV[1]))) do
  local row = call('HMGET', job_key(number), 'cancel', 'id', 'epoch')
  if row[1] then found[#found + 1] = {number, row[2], row[3]} end
end
return found
