-- A worker's row, and the event that tells of its move.
local quoted = cjson.encode

local function worker_key(pool, worker)
  return key(pool, 'worker:' .. worker)
end

local function is_live(status)
  return not (status == 'terminated' or status == 'error' or status == 'lost')
end

local function put(row, name, value)
  if value then call('HSET', row, name, value) end
end

local function tell_moved(pool, at, worker, slot, from, to, reason, exit_code, failure)
  local payload = {
    '{"worker_id":', quoted(worker), ',"worker_group_id":', slot, ',"from":', from and quoted(from) or 'null',
    ',"to":', quoted(to), ',"reason":', quoted(reason),
  }
  if exit_code then payload[#payload + 1] = ',"exit_code":' .. exit_code end
  if failure then payload[#payload + 1] = ',"error":' .. quoted(failure) end
  payload[#payload + 1] = '}'
  tell(pool, at, 'WORKER_MOVED', 'RUN', nil, nil, table.concat(payload))
end

-- change: exit code, error, provider's reference, meta; each a value or '\0'.
local function move(pool, worker, from, to, reason, change)
  local row, at = worker_key(pool, worker), now()
  call('HSET', row, 'status', to)
  if to == 'waiting' then call('HSET', row, 'ready_at', int(at)) end
  if not is_live(to) then
    call('HSET', row, 'ended_at', int(at))
    call('ZREM', key(pool, 'live'), worker)
  end
  put(row, 'exit_code', given(change[1]))
  put(row, 'error', given(change[2]))
  put(row, 'provider_ref', given(change[3]))
  put(row, 'meta', given(change[4]))
  tell_moved(pool, at, worker, call('HGET', row, 'slot'), from, to, reason, given(change[1]), given(change[2]))
  return call('HGETALL', row)
end
