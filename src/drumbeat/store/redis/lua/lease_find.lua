-- A lease's last holder.
return call('HMGET', key(ARGV[1], 'lease'), 'owner', 'epoch', 'expires_at')
