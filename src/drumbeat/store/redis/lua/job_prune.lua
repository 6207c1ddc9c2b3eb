-- needs: jobs
-- Delete one page of a pool's old jobs of one status, with their attempts. The caller repeats this until none is left.
local pool, ended, page = ARGV[1], key(ARGV[1], ARGV[2]), ARGV[4]
local numbers = call('ZRANGEBYSCORE', ended, '-inf', '(' .. int(now() - ARGV[3]), 'LIMIT', 0, page)
for _, number in ipairs(numbers) do
  local id = call('HGET', job_key(number), 'id')
  if id then call('HDEL', prefix .. 'job_names', id) end
  call('UNLINK', job_key(number), doc_key(number), tries_key(number))
end
if #numbers > 0 then
  call('ZREM', ended, unpack(numbers))
  call('ZREM', key(pool, 'jobs'), unpack(numbers))
end
return #numbers
