-- needs: jobs, lanes, verdicts, flows
-- Check all ids before storing the first job. Ids, unique keys and queue are written in one script, so a key has one job.
-- The parents of a job that exists already are not checked: they may be pruned by now.
-- A row: document, lane, priority, run_at or nil, delay, max_attempts, max_crashes, unique key or nil, id or nil,
-- ids of parents or nil, whether one parent is enough, what happens if a parent fails, workflow or nil. Parents come first.
local pool, rows = ARGV[1], cmsgpack.unpack(ARGV[2])
expect_jobs_pool(pool)
local chosen = {}  -- by the id that the caller chose for a job of this push: its number, once it is stored
local has_kids = {}  -- the chosen ids of jobs that a new job of this push waits for
for _, row in ipairs(rows) do
  local number = row[9] and call('HGET', prefix .. 'job_names', row[9])
  local owner = number and call('HGET', job_key(number), 'pool')
  if owner and not home_of(number) then  -- its pool is being deleted, so the id is free
    call('HDEL', prefix .. 'job_names', row[9])
    number, owner = nil, nil
  end
  if owner and owner ~= pool then
    refuse('AlreadyExists', 'job ' .. row[9] .. ' already exists in pool ' .. owner .. '; choose another id')
  end
  local is_known = number or (row[8] and call('HGET', key(pool, 'unique'), row[8]))
  for _, parent in ipairs(not is_known and row[10] or {}) do
    local other = not chosen[parent] and number_of(parent)
    if not chosen[parent] and not home_of(other) then
      refuse('NotFound', 'after: there is no job \'' .. parent .. '\' to wait for; name a job that exists or is in the same push')
    end
    if not row[8] then has_kids[parent] = true end
  end
  if row[9] then chosen[row[9]] = chosen[row[9]] or true end
end

local at, ids, order, unfinished, waiting = now(), {}, {}, {}, {}
local children, workflows = {}, {}  -- by the key of a set: its new members
local new, is_marked = {}, {}  -- by the number of a new job: its status, and whether it is stored as a job with children
local last = call('INCRBY', prefix .. 'job_count', #rows) - #rows

local function existing(row)
  if row[9] then
    local number = call('HGET', prefix .. 'job_names', row[9])
    if number then return row[9], number end
  end
  local number = row[8] and call('HGET', key(pool, 'unique'), row[8])
  if number then return call('HGET', job_key(number), 'id') or string.format('j%012d', number), number end
end

local function parents_of(row)
  local parents, seen = {}, {}
  for _, id in ipairs(row[10] or {}) do
    local parent = type(chosen[id]) == 'string' and chosen[id] or number_of(id)
    if not seen[parent] then parents[#parents + 1] = parent end
    seen[parent] = true
  end
  return parents
end

local function link(parents, number)
  local members, older = {}, {}
  for _, parent in ipairs(parents) do
    members[#members + 1], members[#members + 2] = 0, parent
    local name = children_key(parent)
    local list = children[name] or {}
    children[name], list[#list + 1], list[#list + 2] = list, 0, number
    if not is_marked[parent] then call('HSET', job_key(parent), 'kids', 1) end
    if not new[parent] then older[#older + 1] = parent end
  end
  note_links(pool, older)
  add_many(parents_key(number), members)
end

local function keep(row, number)
  local due, parents = math.max(row[4] or at, at + row[5]), parents_of(row)
  local status, waits, failed = 'pending', 0, nil
  if #parents > 0 then
    status, waits, failed = state_after(parents, row[11], row[12], new)
    link(parents, number)
  end
  new[number] = status
  local fields = {'pool', pool, 'status', status, 'created', int(at)}
  local function also(name, value)
    fields[#fields + 1], fields[#fields + 2] = name, value
  end
  if row[2] ~= '' then also('lane', row[2]) end
  if row[3] ~= 0 then also('pri', int(row[3])) end
  if row[6] ~= 3 then also('ma', int(row[6])) end
  if row[7] ~= 3 then also('mc', int(row[7])) end
  if due > at then also('not_before', int(due)) end
  if row[8] then
    also('uk', row[8])
    if status ~= 'cancelled' then call('HSET', key(pool, 'unique'), row[8], number) end
  end
  if row[9] then
    also('id', row[9])
    if has_kids[row[9]] then
      also('kids', 1)
      is_marked[number] = true
    end
    call('HSET', prefix .. 'job_names', row[9], number)
  end
  if #parents > 0 then also('iff', row[12]) end
  if #parents > 0 and row[11] then also('any', 1) end
  if waits > 0 then also('waits', int(waits)) end
  if row[13] then
    also('wf', row[13])
    note_in(workflows, workflow_key(row[13]), 0, number)
  end
  if failed then
    also('last_error', skip_reason(failed))
    also('finished', int(at))
  end
  call('HSET', job_key(number), unpack(fields))
  call('SET', doc_key(number), row[1])
  order[#order + 1], order[#order + 2] = 0, number
  if status == 'cancelled' then
    call('ZADD', key(pool, 'cancelled'), int(at), number)
    return
  end
  unfinished[#unfinished + 1], unfinished[#unfinished + 2] = 0, number
  if status == 'waiting' then
    waiting[#waiting + 1], waiting[#waiting + 2] = 0, number
  elseif due > at then
    call('ZADD', key(pool, 'delayed'), int(due), number)
    news(pool)
  else
    queue(pool, row[2], row[3], number, int(at))
  end
end

for _, row in ipairs(rows) do
  local id, number
  if row[8] or row[9] then id, number = existing(row) end
  if not id then
    last = last + 1
    number = string.format('%015d', last)
    keep(row, number)
    id = row[9] or string.format('j%012d', last)
  end
  if row[9] and chosen[row[9]] == true then chosen[row[9]] = number end
  ids[#ids + 1] = id
end
add_many(key(pool, 'jobs'), order)
add_many(key(pool, 'unfinished'), unfinished)
add_many(key(pool, 'waiting'), waiting)
for name, members in pairs(children) do add_many(name, members) end
for name, members in pairs(workflows) do add_many(name, members) end
flush()
return ids
