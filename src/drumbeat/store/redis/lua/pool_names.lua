-- The ids of every pool, oldest first.
return call('ZRANGE', prefix .. 'pools', 0, -1)
