-- One pool, or nothing.
return call('HGETALL', key(ARGV[1], 'pool'))
