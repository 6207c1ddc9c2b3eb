-- needs: fence, tell, moves
-- Compare and set in one script: a worker that has moved or sent a heartbeat since it was read is not changed.
local name, epoch, pool, worker, status, beats, to, legal, reason = unpack(ARGV)
admit(name, epoch)
local row = call('HMGET', worker_key(pool, worker), 'status', 'heartbeat_count')
if not row[1] then
  refuse('NotFound', 'there is no worker \'' .. worker .. '\' in pool \'' .. pool .. '\'; see: drumbeat workers list ' .. pool)
end
local count = row[2] or '0'
if row[1] ~= status or count ~= beats then
  refuse('StaleWrite', 'worker ' .. worker .. ' changed: expected ' .. status .. ' with ' .. beats .. ' heartbeats, got '
    .. row[1] .. ' with ' .. count .. '; read it and decide again')
end
if legal == '0' then refuse('IllegalMove', status) end
return move(pool, worker, status, to, reason, {unpack(ARGV, 10, 13)})
