-- needs: fence, tell, moves
-- Skip workers that have a drain deadline already, so that repeating the request changes nothing.
local name, epoch, pool, within, payload = unpack(ARGV, 1, 5)
local at, asked = now(), {}
admit(name, epoch)
for i = 6, #ARGV do
  local row = worker_key(pool, ARGV[i])
  local found = call('HMGET', row, 'status', 'drain_deadline')
  if found[1] and is_live(found[1]) and not found[2] then
    call('HSET', row, 'drain_deadline', int(at + within))
    tell(pool, at, 'STOP', 'WORKER', ARGV[i], nil, payload)
    asked[#asked + 1] = ARGV[i]
  end
end
if #asked > 0 and call('HDEL', key(pool, 'pool'), 'waiting') == 1 then
  call('XADD', key(pool, 'news'), 'MAXLEN', 1, '*', 'n', 1)
end
return asked
