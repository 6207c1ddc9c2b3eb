-- One note, or nothing.
local kept = call('HGET', prefix .. 'notes', ARGV[1])
if not kept then return end
local space = string.find(kept, ' ', 1, true)
return {string.sub(kept, 1, space - 1), string.sub(kept, space + 1)}
