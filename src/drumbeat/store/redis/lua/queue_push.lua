-- needs: jobs, lanes
-- Check all ids before storing the first job. Ids, unique keys and queue are written in one script, so a key has one job.
-- A row: document, lane, priority, run_at or nil, delay, max_attempts, max_crashes, unique key or nil, id or nil.
local pool, rows = ARGV[1], cmsgpack.unpack(ARGV[2])
expect_pool(pool)
for _, row in ipairs(rows) do
  local number = row[9] and call('HGET', prefix .. 'job_names', row[9])
  local owner = number and call('HGET', job_key(number), 'pool')
  if owner and owner ~= pool then
    refuse('AlreadyExists', 'job ' .. row[9] .. ' already exists in pool ' .. owner .. '; choose another id')
  end
end

local at, ids, order = now(), {}, {}
local last = call('INCRBY', prefix .. 'job_count', #rows) - #rows

local function existing(row)
  if row[9] and call('HEXISTS', prefix .. 'job_names', row[9]) == 1 then return row[9] end
  local number = row[8] and call('HGET', key(pool, 'unique'), row[8])
  if number then return call('HGET', job_key(number), 'id') or string.format('j%012d', number) end
end

local function keep(row, number)
  local due = math.max(row[4] or at, at + row[5])
  local fields = {'pool', pool, 'status', 'pending', 'created', int(at)}
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
    call('HSET', key(pool, 'unique'), row[8], number)
  end
  if row[9] then
    also('id', row[9])
    call('HSET', prefix .. 'job_names', row[9], number)
  end
  call('HSET', job_key(number), unpack(fields))
  call('SET', doc_key(number), row[1])
  order[#order + 1], order[#order + 2] = 0, number
  if due > at then
    call('ZADD', key(pool, 'delayed'), int(due), number)
    news(pool)
  else
    queue(pool, row[2], row[3], number, int(at))
  end
end

for _, row in ipairs(rows) do
  local id = (row[8] or row[9]) and existing(row)
  if not id then
    last = last + 1
    keep(row, string.format('%015d', last))
    id = row[9] or string.format('j%012d', last)
  end
  ids[#ids + 1] = id
end
add_many(key(pool, 'jobs'), order)
add_many(key(pool, 'unfinished'), order)
flush()
return ids
