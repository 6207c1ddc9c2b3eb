-- Jobs that wait for other jobs. ``parents:`` and ``children:`` are sorted sets of job numbers, for each job that has some.
local function parents_key(number)
  return prefix .. 'parents:' .. number
end

local function children_key(number)
  return prefix .. 'children:' .. number
end

local function workflow_key(workflow)
  return prefix .. 'workflow:' .. workflow
end

-- The pool of a job; nothing if there is no such job, or if its pool is being deleted.
local function home_of(number)
  local home = number and call('HGET', job_key(number), 'pool')
  return home and call('EXISTS', key(home, 'pool')) == 1 and home or nil
end

-- Note in the pools of these parents that a job of this pool needs them: they are not deleted if they have checked that before.
local function note_links(pool, parents)
  for _, parent in ipairs(parents) do
    local home = home_of(parent)
    if home and home ~= pool then call('HINCRBY', key(home, 'pool'), 'links', 1) end
  end
end

local function is_failed(status)
  return status == 'poisoned' or status == 'cancelled'
end

local function is_unfinished(status)
  return status == 'waiting' or status == 'pending' or status == 'claimed'
end

-- The state of a job from the states of all its parents: its status, for how many parents it waits, and a failed parent.
-- ``known``: the states of some parents by their numbers.
local function state_after(parents, any, policy, known)
  local unfinished, satisfied, failed, first_failed = 0, 0, 0, nil
  for _, parent in ipairs(parents) do
    local status = known and known[parent] or (home_of(parent) and call('HGET', job_key(parent), 'status'))
    if status == 'done' or (policy == 'run' and is_failed(status)) then
      satisfied = satisfied + 1
    elseif is_failed(status) then
      failed = failed + 1
      first_failed = first_failed or {parent, status}
    elseif status then
      unfinished = unfinished + 1
    end
  end
  local left = unfinished + failed
  if left == 0 or (any and satisfied > 0) then return 'pending', 0 end
  if policy == 'skip' and failed > 0 and not (any and unfinished > 0) then return 'cancelled', 0, first_failed end
  return 'waiting', any and 1 or left
end

local function skip_reason(failed)
  local id = call('HGET', job_key(failed[1]), 'id') or string.format('j%012d', failed[1])
  return 'skipped, because job ' .. id .. ' was ' .. failed[2] .. ' and this job runs only after it is done'
end

-- What the end of a parent may read or change of a waiting job; the fields of a lease may be left from an earlier attempt.
local WAITING = {
  'status', 'pool', 'lane', 'pri', 'uk', 'cancel', 'kids', 'waits', 'any', 'iff', 'not_before', 'last_error', 'owner', 'until',
  'begun', 'extended',
}

-- The same of a job that was never claimed, so that it has no lease and no request to stop.
local UNCLAIMED = {'status', 'pool', 'lane', 'pri', 'waits', 'not_before', 'epoch'}

local function peek_waiting(number)
  local row = peek(number, WAITING)
  return row and row.status == 'waiting' and row or nil
end

-- What the end of a parent that is done may read or change of a waiting job.
local function peek_released(number)
  local row = peek(number, UNCLAIMED)
  if not row or row.status ~= 'waiting' then return nil end
  return row.epoch and peek_waiting(number) or row
end

local function stop_waiting(number, row)
  leaving.ZREM = leaving.ZREM or {}
  note_in(leaving.ZREM, key(row.pool, 'waiting'), number)
  set(row, 'waits', '0')  -- with the fields that change anyway: to delete it would take a command more
end

local function change_waiting(number, row, status, waits, failed, at)
  if status == 'waiting' then
    if tonumber(row.waits) ~= waits then set(row, 'waits', int(waits)) end
  else
    stop_waiting(number, row)
    if status == 'pending' then
      give_back(number, row, math.max(tonumber(row.not_before or 0), at), at)
    else
      set(row, 'last_error', skip_reason(failed))
      end_as(number, row, 'cancelled', at)
    end
  end
  save(number, row)
end

local function after_failure(number, row)
  if row.iff == 'run' then
    local left = tonumber(row.waits) - 1
    return left > 0 and 'waiting' or 'pending', math.max(left, 0)
  end
  if row.iff ~= 'skip' then return 'waiting', tonumber(row.waits) end
  return state_after(call('ZRANGE', parents_key(number), 0, -1), row.any, 'skip')
end

-- Update each job that waits for jobs that are done, once for all of them. Returns the jobs with children that failed.
local function pass_on_done(at)
  local failed, done, children = {}, {}, {}
  for _, ended in ipairs(parents_ended) do
    if ended[2] == 'done' then
      for _, number in ipairs(call('ZRANGE', children_key(ended[1]), 0, -1)) do
        if not done[number] then children[#children + 1] = number end
        done[number] = (done[number] or 0) + 1
      end
    else
      failed[#failed + 1] = ended
    end
  end
  for _, number in ipairs(children) do
    local row = peek_released(number)
    if row then
      local left = tonumber(row.waits) - done[number]
      change_waiting(number, row, left > 0 and 'waiting' or 'pending', math.max(left, 0), nil, at)
    end
  end
  return failed
end

-- Update the jobs that wait for jobs that this script has ended; skipped jobs end too, and are added to the same list.
local function pass_on_ends(at)
  parents_ended = pass_on_done(at)
  local n = 1
  while parents_ended[n] do
    for _, number in ipairs(call('ZRANGE', children_key(parents_ended[n][1]), 0, -1)) do
      local row = peek_waiting(number)
      if row then
        local after, waits, failed = after_failure(number, row)
        change_waiting(number, row, after, waits, failed, at)
      end
    end
    n = n + 1
  end
  parents_ended = {}
end

-- A failed parent had counted as done for these jobs. It was requeued, so they wait for it again.
local function reopen_children(parent)
  for _, number in ipairs(call('ZRANGE', children_key(parent), 0, -1)) do
    local row = peek_waiting(number)
    if row and row.iff == 'run' and not row.any then call('HINCRBY', job_key(number), 'waits', 1) end
  end
end

-- Whether a job has a child that may still run, perhaps after a requeue.
local function is_needed(number)
  for _, child in ipairs(call('ZRANGE', children_key(number), 0, -1)) do
    local status = call('HGET', job_key(child), 'status')
    if is_unfinished(status) or status == 'poisoned' then return true end
  end
  return false
end

-- An unfinished child of a job that is in another pool than this one, and that pool.
local function child_elsewhere(number, pool)
  for _, child in ipairs(call('ZRANGE', children_key(number), 0, -1)) do
    local status, home = unpack(call('HMGET', job_key(child), 'status', 'pool'))
    if home ~= pool and is_unfinished(status) then return child, home end
  end
end

-- Remove a deleted job from the sets of its workflow and of its parents.
local function forget_links(number, workflow)
  if workflow then call('ZREM', workflow_key(workflow), number) end
  for _, parent in ipairs(call('ZRANGE', parents_key(number), 0, -1)) do call('ZREM', children_key(parent), number) end
  call('UNLINK', parents_key(number), children_key(number))
end
