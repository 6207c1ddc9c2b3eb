-- An expired lease can still be renewed if no other owner took it, which the epoch shows.
local name, owner, epoch, ttl = unpack(ARGV)
local row = key(name, 'lease')
local kept = call('HMGET', row, 'owner', 'epoch', 'released')
if kept[3] or kept[1] ~= owner or kept[2] ~= epoch then
  refuse('Fenced', 'lease ' .. name .. ' (epoch ' .. epoch .. ') is no longer held by ' .. owner
    .. ': it was released or taken by another owner; stop acting, and acquire it again')
end
local until_then = int(now() + ttl)
call('HSET', row, 'expires_at', until_then)
return until_then
