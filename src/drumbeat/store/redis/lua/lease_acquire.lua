-- The script that takes the lease also checks its expiry, by this server's clock. The epoch only rises.
local name, owner, ttl = unpack(ARGV)
local row, at = key(name, 'lease'), now()
local kept = call('HMGET', row, 'expires_at', 'released')
if kept[1] and not kept[2] and tonumber(kept[1]) > at then return false end
call('SADD', prefix .. 'leases', name)
call('HDEL', row, 'released')
call('HSET', row, 'owner', owner, 'expires_at', int(at + ttl))
return {call('HINCRBY', row, 'epoch', 1), int(at + ttl)}
