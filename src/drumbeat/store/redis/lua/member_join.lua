-- needs: tell, moves, own
-- Check and write in one script, so of several processes that join under one name only the first succeeds.
local pool, worker, instance, slot, host, pid, provider, reference, capabilities = unpack(ARGV)
expect_pool(pool)
local row, at, found = worker_key(pool, worker), int(now()), standing(pool, worker)
if found[1] and found[1] ~= 'spawning' then
  if not is_live(found[1]) then closed(pool, worker, found) end
  if found[2] ~= instance then another_holds(pool, worker, found) end
  return call('HGETALL', row)
end
if not found[1] then
  local number = call('HINCRBY', key(pool, 'pool'), 'last_worker', 1)
  call('ZADD', key(pool, 'workers'), number, worker)
  call('ZADD', key(pool, 'live'), number, worker)
  note_number(pool, worker)
  call('HSET', row, 'worker_id', worker, 'created_at', at)
end
call('HSET', row, 'slot', slot, 'status', 'starting', 'instance', instance, 'host', host, 'pid', pid)
call('HSET', row, 'capabilities', capabilities, 'started_at', at, 'heartbeat_at', at, 'heartbeat_count', 1)
put(row, 'provider', given(provider))
put(row, 'provider_ref', given(reference))
tell_moved(pool, at, worker, slot, found[1], 'starting', 'joined')
return call('HGETALL', row)
