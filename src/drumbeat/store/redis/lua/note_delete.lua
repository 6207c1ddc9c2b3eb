-- Harmless when it is gone.
call('HDEL', prefix .. 'notes', ARGV[1])
