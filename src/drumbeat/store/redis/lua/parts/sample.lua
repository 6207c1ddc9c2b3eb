-- Store a worker's sample unless it is stored already, and drop the pool's oldest samples.
local function keep_sample(pool, worker, at, n, body, most)
  local name, samples, bodies = string.format('%016d:%s', n, worker), key(pool, 'samples'), key(pool, 'sample_bodies')
  if call('HSETNX', bodies, name, body) == 0 then return end
  call('ZADD', samples, int(at), name)
  if call('ZCARD', samples) > most then
    call('HDEL', bodies, call('ZPOPMIN', samples)[1])
  end
end
