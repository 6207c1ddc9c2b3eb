-- A note in place of an earlier one of its name, with the time it was written before it.
local name, body = unpack(ARGV)
local at = int(now())
call('HSET', prefix .. 'notes', name, at .. ' ' .. body)
return at
