-- Harmless when it is gone.
call('DEL', key(ARGV[1], 'answer'))
