-- needs: tell, moves, own, sample
-- Write a worker's heartbeat and sample and read its events in one round trip. Refused if the worker has ended.
local pool, worker, instance, read_to, batch, facts, most = unpack(ARGV)
own(pool, worker, instance)
local NAMES = {'phase', 'applied_target', 'active', 'operations', 'errors', 'error', 'cpu_percent', 'memory_percent', 'gpu'}
local row, at = worker_key(pool, worker), now()

local said, unsaid = {'heartbeat_at', int(at)}, {}
for i, name in ipairs(NAMES) do
  local value = given(ARGV[7 + i])
  if value then
    said[#said + 1] = name
    said[#said + 1] = value
  elseif name ~= 'error' then
    unsaid[#unsaid + 1] = name
  end
end
call('HSET', row, unpack(said))
call('HINCRBY', row, 'heartbeat_count', 1)
if #unsaid > 0 then call('HDEL', row, unpack(unsaid)) end
if given(ARGV[17]) then keep_sample(pool, worker, at - ARGV[18], ARGV[17], ARGV[19], tonumber(most)) end

local kept = call('HMGET', row, 'status', 'target', 'target_seq', 'drain_deadline', 'slot')
local function is_for(entry)
  local event = {}
  for i = 1, #entry, 2 do event[entry[i]] = entry[i + 1] end
  if string.find(facts, ',' .. event.type .. ',', 1, true) then return false end
  if event.scope == 'WORKER' then return event.worker_id == worker end
  if event.scope == 'WORKER_GROUP' then return event.slot == kept[5] end
  return true
end

local news, more, last = {}, 0, read_to
repeat
  local entries = call('XRANGE', key(pool, 'events'), '(' .. last .. '-0', '+', 'COUNT', 200)
  for _, entry in ipairs(entries) do
    if more == 0 and is_for(entry[2]) then
      if #news == tonumber(batch) then more = 1 else news[#news + 1] = entry end
    end
    if more == 0 then last = string.match(entry[1], '^%d+') end
  end
until #entries == 0 or more == 1
if more == 1 then last = string.match(news[#news][1], '^%d+') end
return {int(at), kept[1], kept[2], kept[3], kept[4], last, more, call('HGET', key(pool, 'lease'), 'expires_at'), news}
