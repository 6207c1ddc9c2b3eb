-- Refuse unless ``instance`` is the process that joined as this worker, and the worker's row is live.
local function closed(pool, worker, row)
  local because = row[3] and (' (' .. row[3] .. ')') or ''
  refuse('WorkerGone', 'worker ' .. worker .. ' of pool ' .. pool .. ' has ended as ' .. row[1] .. because .. '; end this process')
end

local function another_holds(pool, worker, row)
  local who = 'worker ' .. worker .. ' of pool ' .. pool
  if not row[2] then refuse('WorkerGone', 'no process has joined as ' .. who .. '; a worker joins before it writes') end
  local state = is_live(row[1]) and '' or (', and has ended as ' .. row[1])
  local where = ' (' .. row[4] .. ', pid ' .. row[5] .. ')'
  refuse('WorkerGone', who .. ': another process joined under this id' .. where .. state .. '; end this process')
end

local function standing(pool, worker)
  return call('HMGET', worker_key(pool, worker), 'status', 'instance', 'error', 'host', 'pid')
end

local function own(pool, worker, instance)
  local row = standing(pool, worker)
  if not row[1] then
    refuse('WorkerGone', 'no such worker: ' .. worker .. ' in pool ' .. pool .. '; it never joined, or was deleted')
  end
  if row[2] ~= instance then another_holds(pool, worker, row) end
  if not is_live(row[1]) then closed(pool, worker, row) end
  return row[1]
end
