-- Does nothing if the caller no longer holds the lease.
local name, owner, epoch = unpack(ARGV)
local row = key(name, 'lease')
local kept = call('HMGET', row, 'owner', 'epoch', 'released')
if kept[1] == owner and kept[2] == epoch and not kept[3] then
  call('HSET', row, 'expires_at', int(now()), 'released', 1)
end
