-- The last known holder.
return call('HMGET', key(ARGV[1], 'lease'), 'owner', 'epoch', 'expires_at')
