-- needs: jobs, lanes, verdicts
-- Keep an event for a job, unless one of its name was sent before; a job that waits for it is due now.
local id, name, value = unpack(ARGV)
local number = number_of(id)
local row = peek(number)
if not row then return false end
local known = call('HGET', events_key(number), name)
if known == 'sent' then return 0 end
if row.status == 'done' or row.status == 'poisoned' or row.status == 'cancelled' then
  refuse('Refused', 'expected a job that has not ended, got job ' .. id .. ', which is ' .. row.status .. '; it receives no events any more')
end
local at, sent = now(), int((row.events or 0) + 1)
call('HSET', events_key(number), name, 'sent')
call('HSET', steps_key(number), '-' .. sent, '{"position":-' .. sent .. ',"name":' .. quoted(name) .. ',"kind":"sent","result":' .. value
  .. ',"started_at":' .. int(at) .. ',"finished_at":' .. int(at) .. '}')
call('HSET', job_key(number), 'steps', 1, 'events', sent)
local due = known and row.status == 'pending' and call('ZSCORE', key(row.pool, 'delayed'), number)
if due and tonumber(due) > at then
  call('ZADD', key(row.pool, 'delayed'), int(at), number)
  call('HSET', job_key(number), 'not_before', int(at))
  news(row.pool)
  flush()
end
return 1
