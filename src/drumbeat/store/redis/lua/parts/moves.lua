-- A worker's row, and the event that reports a change of its status.
local quoted = cjson.encode

local function worker_key(pool, worker)
  return key(pool, 'worker:' .. worker)
end

local function is_live(status)
  return not (status == 'terminated' or status == 'error' or status == 'lost')
end

-- Keep the highest N of the workers named ``worker-N``, so that a name is never reused, even after its row is pruned.
local function note_number(pool, worker)
  local digits = string.match(worker, 'worker%-(%d+)$')
  if not digits or #digits > 15 then return end
  local row = key(pool, 'pool')
  if tonumber(digits) > tonumber(call('HGET', row, 'last_numbered') or -1) then call('HSET', row, 'last_numbered', int(digits)) end
end

-- Index an ended worker by its end time, and as unreaped: its instance is not known to be gone.
local function note_end(pool, worker, at)
  call('ZREM', key(pool, 'live'), worker)
  call('ZADD', key(pool, 'ended'), int(at), worker)
  call('ZADD', key(pool, 'unreaped'), int(at), worker)
end

local function note_reaped(pool, worker, at)
  call('ZREM', key(pool, 'unreaped'), worker)
  call('ZADD', key(pool, 'reaped'), int(at), worker)
end

local function drop_worker(pool, worker)
  call('DEL', worker_key(pool, worker))
  for _, name in ipairs({'ended', 'unreaped', 'reaped'}) do call('ZREM', key(pool, name), worker) end
  return call('ZREM', key(pool, 'workers'), worker)
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

-- Merge two JSON objects as text, since decoding in Lua loses precision. A name in both appears twice; readers take the last.
local function merged(before, after)
  if after == '{}' then return before end
  if before == '{}' then return after end
  return before:sub(1, -2) .. ',' .. after:sub(2)
end

-- change: exit code, error, provider's reference, meta; each a value or '\0'.
local function move(pool, worker, from, to, reason, change)
  local row, at = worker_key(pool, worker), now()
  call('HSET', row, 'status', to)
  if to == 'waiting' then call('HSET', row, 'ready_at', int(at)) end
  if not is_live(to) then
    call('HSET', row, 'ended_at', int(at))
    note_end(pool, worker, at)
  end
  put(row, 'exit_code', given(change[1]))
  put(row, 'error', given(change[2]))
  put(row, 'provider_ref', given(change[3]))
  if given(change[4]) then call('HSET', row, 'meta', merged(call('HGET', row, 'meta') or '{}', change[4])) end
  tell_moved(pool, at, worker, call('HGET', row, 'slot'), from, to, reason, given(change[1]), given(change[2]))
  return call('HGETALL', row)
end
