-- Store a note, prefixed with the current time; it replaces an earlier note of the same name.
local name, body = unpack(ARGV)
local at = int(now())
call('HSET', prefix .. 'notes', name, at .. ' ' .. body)
return at
