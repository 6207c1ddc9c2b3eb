-- needs: fence, tell, moves
-- Check that every worker is live, then write rows and events together.
local name, epoch, pool = unpack(ARGV, 1, 3)
local at, told = now(), {}
admit(name, epoch)
expect_pool(pool)
for i = 4, #ARGV, 3 do
  local status = call('HGET', worker_key(pool, ARGV[i]), 'status')
  if not (status and is_live(status)) then
    local got = status or 'not in the store'
    refuse('NotFound', 'cannot set the target of worker ' .. ARGV[i] .. ' of pool ' .. pool .. ': the worker is ' .. got)
  end
end
for i = 4, #ARGV, 3 do
  local worker, connections, payload = unpack(ARGV, i, i + 2)
  local number = tell(pool, at, 'SET_WORKER_TARGET', 'WORKER', worker, nil, payload)
  call('HSET', worker_key(pool, worker), 'target', connections, 'target_seq', number)
  told[#told + 1] = number
end
return {at, told}
