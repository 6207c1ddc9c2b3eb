-- needs: jobs, lanes
-- Whether ready jobs of the pool wait for a worker that has no other job.
for _, head in ipairs(call('ZRANGE', key(ARGV[1], 'lanes'), 0, -1)) do
  if string.sub(head, -#ALONE) == ALONE then return 1 end
end
return 0
