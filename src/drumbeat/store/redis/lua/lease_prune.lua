-- Delete old one-time leases: their name has a slash and is not a pool's. A pool's lease stays, since an epoch must never be
-- used twice. In one script, so no lease is acquired between the check and the deletion.
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
