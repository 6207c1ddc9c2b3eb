-- Ready jobs are in lanes: one lane for each combination of capability, type, group and group limits, in the order of claiming.
-- ``lanes`` holds the first job of every lane, so that a claim skips a lane that it may not use in one step.
local NUMBER = 15
local queued, touched, leaving, ending = {}, {}, {}, {}

local function lane_key(pool, lane)
  return key(pool, 'lane:' .. lane)
end

local function head_of(pool, lane)
  local head = call('ZRANGE', lane_key(pool, lane), 0, 0, 'WITHSCORES')
  if head[1] then return head[1], tonumber(head[2]) end
end

local function move_head(pool, lane, was, number, score)
  if was == number then return end
  local lanes = key(pool, 'lanes')
  if was then call('ZREM', lanes, was .. lane) end
  if number then call('ZADD', lanes, score, number .. lane) end
end

local function add_many(name, pairs_of)
  for i = 1, #pairs_of, 1000 do
    call('ZADD', name, unpack(pairs_of, i, math.min(i + 999, #pairs_of)))
  end
end

-- Remember a job to be queued; ``flush`` writes all remembered jobs.
local function queue(pool, lane, priority, number, since)
  queued[pool] = queued[pool] or {ready = {}, lanes = {}}
  local adding = queued[pool]
  local ready = adding.ready
  ready[#ready + 1], ready[#ready + 2] = since, number
  adding.lanes[lane] = adding.lanes[lane] or {}
  local members = adding.lanes[lane]
  members[#members + 1], members[#members + 2] = 0 - priority, number
end

local function put_in_lane(pool, lane, members)
  local was, best = head_of(pool, lane)
  local first = was
  for i = 1, #members, 2 do
    local score, number = members[i], members[i + 1]
    if not first or score < best or (score == best and number < first) then first, best = number, score end
  end
  add_many(lane_key(pool, lane), members)
  move_head(pool, lane, was, first, best)
end

-- News is written only if a claim has found nothing since the last news, so a busy queue has no such writes.
local function news(pool)
  touched[pool] = true
end

local function write_news(pool)
  if call('HDEL', key(pool, 'pool'), 'waiting') == 1 then
    call('XADD', key(pool, 'news'), 'MAXLEN', 1, '*', 'n', 1)
  end
end

local function note_in(notes, name, ...)
  notes[name] = notes[name] or {}
  local list = notes[name]
  for _, word in ipairs({...}) do list[#list + 1] = word end
end

local function remove_many(command, notes)
  for name, numbers in pairs(notes) do
    for i = 1, #numbers, 1000 do call(command, name, unpack(numbers, i, math.min(i + 999, #numbers))) end
  end
end

-- Write the changes of the claims that ended, one command per set.
local function flush_ended()
  for command, notes in pairs(leaving) do remove_many(command, notes) end
  for name, members in pairs(ending) do add_many(name, members) end
  leaving, ending = {}, {}
end

local function flush()
  flush_ended()
  for pool, adding in pairs(queued) do
    add_many(key(pool, 'ready'), adding.ready)
    for lane, members in pairs(adding.lanes) do put_in_lane(pool, lane, members) end
    touched[pool] = true
  end
  queued = {}
  for pool in pairs(touched) do write_news(pool) end
  touched = {}
end

local function dequeue(pool, lane, numbers)
  local was = head_of(pool, lane)
  call('ZREM', lane_key(pool, lane), unpack(numbers))
  call('ZREM', key(pool, 'ready'), unpack(numbers))
  move_head(pool, lane, was, head_of(pool, lane))
end

-- Queue the delayed jobs that are due, at most a thousand at once, so that one claim does not block the server for long.
local function promote(pool, at)
  local delayed = key(pool, 'delayed')
  local due = call('ZRANGEBYSCORE', delayed, '-inf', int(at), 'WITHSCORES', 'LIMIT', 0, 1000)
  if #due == 0 then return end
  for i = 1, #due, 2 do
    local job = call('HMGET', prefix .. 'job:' .. due[i], 'lane', 'pri')
    queue(pool, job[1] or '', tonumber(job[2] or 0), due[i], due[i + 1])
    call('ZREM', delayed, due[i])
  end
  flush()
end
