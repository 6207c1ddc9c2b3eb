-- Delete a note, if there is one.
call('HDEL', prefix .. 'notes', ARGV[1])
