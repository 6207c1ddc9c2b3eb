-- Number and store log lines in order, and drop the pool's oldest lines.
local pool, most = ARGV[1], ARGV[2]
expect_pool(pool)
local at = now()
for i = 3, #ARGV, 4 do
  local age, worker, rank, body = unpack(ARGV, i, i + 3)
  local id = int(call('HINCRBY', key(pool, 'pool'), 'last_log', 1)) .. '-0'
  call('XADD', key(pool, 'logs'), 'MAXLEN', '~', most, id, 'at', int(at - age), 'worker', worker, 'rank', rank, 'body', body)
end
