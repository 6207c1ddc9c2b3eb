-- Delete the old one-time leases in one page of leases: their name has a slash and is not a pool's. A pool's lease stays, since
-- an epoch must never be used twice. In one script, so no lease is acquired between the check and the deletion.
-- Returns how many were deleted, and where to continue; 0 after the last page.
local before, gone = now() - ARGV[1], 0
local cursor, names = unpack(call('SSCAN', prefix .. 'leases', ARGV[2], 'COUNT', ARGV[3]))
for _, name in ipairs(names) do
  local row = key(name, 'lease')
  local until_ = call('HGET', row, 'expires_at')
  if string.find(name, '/', 1, true) and not call('ZSCORE', prefix .. 'pools', name) and (not until_ or tonumber(until_) < before) then
    call('DEL', row)
    gone = gone + call('SREM', prefix .. 'leases', name)
  end
end
return {gone, cursor}
