-- needs: tell, moves, own, sample
-- Write a worker's heartbeat and sample and read its events in one round trip. Refused if the worker has ended.
local pool, worker, instance, read_to, batch, most = unpack(ARGV)
own(pool, worker, instance)
local NAMES = {'phase', 'applied_target', 'active', 'operations', 'errors', 'error', 'cpu_percent', 'memory_percent', 'gpu'}
local row, at = worker_key(pool, worker), now()

local said, unsaid = {'heartbeat_at', int(at)}, {}
for i, name in ipairs(NAMES) do
  local value = given(ARGV[6 + i])
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
if given(ARGV[16]) then keep_sample(pool, worker, at - ARGV[17], ARGV[16], ARGV[18], tonumber(most)) end

local kept = call('HMGET', row, 'status', 'target', 'target_seq', 'drain_deadline', 'slot')
batch = tonumber(batch)
local numbers = {}
for _, to in ipairs({addressee('RUN'), addressee('WORKER', worker), addressee('WORKER_GROUP', nil, kept[5])}) do
  for _, number in ipairs(instructions_after(pool, to, tonumber(read_to), batch + 1)) do numbers[#numbers + 1] = number end
end
table.sort(numbers)

local news, more = {}, #numbers > batch and 1 or 0
for n = 1, math.min(#numbers, batch) do
  local id = int(numbers[n]) .. '-0'
  news[#news + 1] = call('XRANGE', key(pool, 'events'), id, id)[1]
end
local last = more == 1 and numbers[batch] or math.max(tonumber(read_to), tonumber(call('HGET', key(pool, 'pool'), 'last_event') or 0))
return {int(at), kept[1], kept[2], kept[3], kept[4], int(last), more, call('HGET', key(pool, 'lease'), 'expires_at'), news}
