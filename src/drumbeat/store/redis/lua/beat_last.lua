-- The newest beat.
return call('XREVRANGE', key(ARGV[1], 'beats'), '+', '-', 'COUNT', 1)
