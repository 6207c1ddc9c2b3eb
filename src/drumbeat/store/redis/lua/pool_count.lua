-- How many rows a pool has, by table.
local pool = ARGV[1]
return {
  call('ZCARD', key(pool, 'workers')), call('XLEN', key(pool, 'events')), call('XLEN', key(pool, 'beats')),
  call('ZCARD', key(pool, 'samples')), call('XLEN', key(pool, 'logs')), call('ZCARD', key(pool, 'jobs')),
}
