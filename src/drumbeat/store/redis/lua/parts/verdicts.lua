-- Apply the outcome of a claimed job. Every outcome closes the attempt and releases the lease.
local function holds(row, holder, epoch)
  return row and row.status == 'claimed' and row.owner == holder and row.epoch == epoch
end

local function free_key(number, row)
  if row.uk and call('HGET', key(row.pool, 'unique'), row.uk) == number then call('HDEL', key(row.pool, 'unique'), row.uk) end
end

local parents_ended = {}  -- the jobs with children that this script has ended; pass_on_ends updates the children

local function end_as(number, row, status, at)
  set(row, 'status', status)
  set(row, 'finished', int(at))
  unset(row, 'until')
  if status ~= 'done' then
    unset(row, 'owner')
    unset(row, 'begun')
    unset(row, 'extended')
  end
  free_key(number, row)
  leaving.ZREM = leaving.ZREM or {}
  note_in(leaving.ZREM, key(row.pool, 'unfinished'), number)
  note_in(ending, key(row.pool, status), int(at), number)
  if row.kids then parents_ended[#parents_ended + 1] = {number, status} end
end

local function give_back(number, row, due, at)
  if row.cancel then return end_as(number, row, 'cancelled', at) end
  set(row, 'status', 'pending')
  set(row, 'not_before', int(due))
  unset(row, 'owner')
  unset(row, 'until')
  unset(row, 'begun')
  unset(row, 'extended')
  if due > at then
    call('ZADD', key(row.pool, 'delayed'), int(due), number)
    news(row.pool)
  else
    queue(row.pool, row.lane or '', tonumber(row.pri or 0), number, int(due))
  end
end

local function note_error(row, failure)
  if failure then set(row, 'last_error', failure) else unset(row, 'last_error') end
end

local function close_attempt(number, row, outcome, failure, at)
  leaving.ZREM, leaving.SREM = leaving.ZREM or {}, leaving.SREM or {}
  note_in(leaving.ZREM, key(row.pool, 'leases'), number)
  note_in(leaving.SREM, held_key(row.owner), number)
  if row.lane then
    local group = cjson.decode(row.lane)[3]
    if group ~= cjson.null then
      local running = key(row.pool, 'running')
      if call('HINCRBY', running, group, -1) <= 0 then call('HDEL', running, group) end
      news(row.pool)
    end
  end
  if outcome == 'done' and not failure then return end
  local worker, home = worker_of(row.owner)
  call('RPUSH', tries_key(number), '{"n":' .. row.epoch .. ',"worker":' .. quoted(worker) .. ',"pool":' .. quoted(home)
    .. ',"started":' .. (row.begun or row.claimed) .. ',"ended":' .. int(at) .. ',"outcome":' .. quoted(outcome) .. ',"error":' .. (failure and quoted(failure) or 'null') .. '}')
end

-- Record that the job's worker ended, while ``others`` other jobs had begun on that worker. ``charge``: whether the job may be
-- the cause; if not, the attempt does not count.
local function lose(number, row, failure, others, charge, at)
  if not row.begun or not charge then
    close_attempt(number, row, 'released', row.begun and failure or failure .. '; the job had not begun', at)
    if row.begun then set(row, 'attempts', int(row.attempts - 1)) end
    give_back(number, row, at, at)
  else
    if others == 1 then
      failure = failure .. '; another job may have run on this worker too, so it is unknown which job was the cause'
    elseif others > 1 then
      failure = failure .. '; ' .. int(others) .. ' other jobs may have run on this worker too, so it is unknown which job was the cause'
    end
    close_attempt(number, row, 'crashed', failure, at)
    local count = others > 0 and 'suspicions' or 'crashes'
    set(row, count, int((row[count] or 0) + 1))
    note_error(row, failure)
    local deaths, most = (row.crashes or 0) + (row.suspicions or 0), tonumber(row.mc or 3)
    if deaths >= math.max(most - 1, 1) then set(row, 'lane', with_alone(row.lane)) end
    if others == 0 and deaths >= most then
      end_as(number, row, 'poisoned', at)
    else
      give_back(number, row, at, at)
    end
  end
  save(number, row)
end

-- How many jobs had begun on a lost worker. Each job stores the count, since their leases may expire at different times.
local function count_begun(holder)
  local begun, most = {}, 0
  for _, number in ipairs(call('SMEMBERS', held_key(holder))) do
    local row = call('HMGET', job_key(number), 'begun', 'company')
    if row[1] then begun[#begun + 1] = number end
    most = math.max(most, tonumber(row[2] or 0))
  end
  most = math.max(most, #begun)
  if most > 1 then
    for _, number in ipairs(begun) do call('HSET', job_key(number), 'company', int(most)) end
  end
  return most
end

local function settle(number, row, outcome, result, failure, retry, fatal, seen, at)
  if outcome == 'crashed' then return lose(number, row, failure or 'its worker was lost', 0, true, at) end
  close_attempt(number, row, outcome, failure, at)
  if outcome == 'done' then
    if result then set(row, 'result', result) end
    end_as(number, row, 'done', at)
  elseif outcome == 'released' then
    if row.begun then set(row, 'attempts', int(row.attempts - 1)) end
    give_back(number, row, at, at)
  elseif outcome == 'suspended' then
    if row.begun then set(row, 'attempts', int(row.attempts - 1)) end
    local missed = seen and tonumber(row.events or 0) > seen
    give_back(number, row, missed and at or at + retry, at)
  elseif outcome == 'cancelled' then
    if failure then set(row, 'last_error', failure) end
    end_as(number, row, 'cancelled', at)
  else
    set(row, 'failures', int((row.failures or 0) + 1))
    note_error(row, failure)
    if fatal or tonumber(row.failures) >= tonumber(row.ma or 3) then
      end_as(number, row, 'poisoned', at)
    else
      give_back(number, row, at + retry, at)
    end
  end
  save(number, row)
end
