-- Delete a stored answer, if there is one.
call('DEL', key(ARGV[1], 'answer'))
