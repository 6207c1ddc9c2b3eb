-- needs: tell
-- Migrate from layout 3: list one page of a pool's instructions by addressee. Returns the id of the page's last event, if any.
local pool, after, page = ARGV[1], ARGV[2], ARGV[3]
local entries = call('XRANGE', key(pool, 'events'), after, '+', 'COUNT', page)
for _, entry in ipairs(entries) do
  local event = named(entry[2])
  note_instruction(pool, tonumber(string.match(entry[1], '^%d+')), event.type, event.scope, event.worker_id, event.slot)
end
return #entries > 0 and entries[#entries][1]
