-- needs: fence, tell, moves
-- Check all rows before the first write, so that either all workers are added or none.
local WIDTH, made, at = 8, {}, now()
admit(ARGV[1], ARGV[2])
for i = 3, #ARGV, WIDTH do
  local pool, worker = ARGV[i], ARGV[i + 1]
  expect_pool(pool)
  local row = worker_key(pool, worker)
  if made[row] or call('EXISTS', row) == 1 then
    refuse('AlreadyExists', 'worker ' .. worker .. ' of pool ' .. pool .. ' already exists; choose another id')
  end
  made[row] = true
end
for i = 3, #ARGV, WIDTH do
  local pool, worker, slot, provider, reference, capabilities, target, meta = unpack(ARGV, i, i + WIDTH - 1)
  local row = worker_key(pool, worker)
  call('HSET', row, 'worker_id', worker, 'slot', slot, 'status', 'spawning', 'created_at', int(at))
  call('HSET', row, 'capabilities', capabilities, 'target', target, 'meta', meta)
  put(row, 'provider', given(provider))
  put(row, 'provider_ref', given(reference))
  local number = call('HINCRBY', key(pool, 'pool'), 'last_worker', 1)
  call('ZADD', key(pool, 'workers'), number, worker)
  call('ZADD', key(pool, 'live'), number, worker)
  note_number(pool, worker)
  tell_moved(pool, at, worker, slot, nil, 'spawning', 'asked for')
end
