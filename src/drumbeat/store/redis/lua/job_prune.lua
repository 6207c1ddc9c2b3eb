-- needs: jobs
-- Some of a pool's jobs that ended long enough ago, with their attempts; the caller comes back until there are none.
local pool, age, page, gone = ARGV[1], ARGV[2], ARGV[3], 0
local before = int(now() - age)
for i = 4, #ARGV do
  local ended = key(pool, ARGV[i])
  for _, number in ipairs(call('ZRANGEBYSCORE', ended, '-inf', '(' .. before, 'LIMIT', 0, page)) do
    local id = call('HGET', job_key(number), 'id')
    if id then call('HDEL', prefix .. 'job_names', id) end
    call('UNLINK', job_key(number), doc_key(number), tries_key(number))
    call('ZREM', ended, number)
    call('ZREM', key(pool, 'jobs'), number)
    gone = gone + 1
  end
end
return gone
