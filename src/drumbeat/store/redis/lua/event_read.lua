-- The entries after a number, in order.
return call('XRANGE', key(ARGV[1], 'events'), '(' .. ARGV[2] .. '-0', '+', 'COUNT', ARGV[3])
