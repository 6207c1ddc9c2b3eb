-- Refuse unless the caller still holds the lease: it is not released and its epoch is the same.
local function admit(name, epoch)
  if epoch == '\0' then return end
  local kept = call('HMGET', key(name, 'lease'), 'epoch', 'owner', 'released')
  if kept[1] == epoch and not kept[3] then return end
  local how = 'was never acquired'
  if kept[3] then
    how = 'was released'
  elseif kept[1] then
    how = 'is held by ' .. kept[2] .. ' under epoch ' .. kept[1]
  end
  refuse('Fenced', 'expected lease ' .. name .. ' with epoch ' .. epoch .. ', but it ' .. how .. '; acquire it and try again')
end
