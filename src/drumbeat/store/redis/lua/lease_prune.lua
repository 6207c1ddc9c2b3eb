-- Leases of an occasion (a name with a slash, and no pool's) that ran out longer ago. A pool's stays: its epochs must never be
-- used twice. One script, so none is taken between the look and the end.
local before, gone = now() - ARGV[1], 0
for _, name in ipairs(call('SMEMBERS', prefix .. 'leases')) do
  local row = key(name, 'lease')
  local until_ = call('HGET', row, 'expires_at')
  if string.find(name, '/', 1, true) and not call('ZSCORE', prefix .. 'pools', name) and (not until_ or tonumber(until_) < before) then
    call('DEL', row)
    gone = gone + call('SREM', prefix .. 'leases', name)
  end
end
return gone
