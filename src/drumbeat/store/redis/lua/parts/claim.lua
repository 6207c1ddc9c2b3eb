-- Claim ready jobs in order: from each lane as many jobs as come before the first job of the next lane.
local PLAIN = {cjson.null, '', cjson.null}

local function is_named(wanted, word)
  for _, each in ipairs(wanted) do
    if each == word then return true end
  end
  return false
end

-- How many jobs of a lane its group limits allow now, up to ``most``. A lane is [capability, type, group, limit, count, per].
local function room_of_group(pool, needs, most, at)
  local room, group = most, needs[3]
  if group == cjson.null then return room end
  if needs[4] ~= cjson.null then
    room = math.min(room, needs[4] - tonumber(call('HGET', key(pool, 'running'), group) or 0))
  end
  if needs[5] ~= cjson.null then
    room = math.min(room, needs[5] - call('ZCOUNT', key(pool, 'rate:' .. group), '(' .. int(at - needs[6]), '+inf'))
  end
  return math.max(room, 0)
end

local function needs_of(lane)
  return lane == '' and PLAIN or cjson.decode(lane)
end

-- Whether jobs of this type are wanted: it is among ``types``, if there are any, and not among ``without``.
local function accepts(wanted, kind)
  return (#wanted.types == 0 or is_named(wanted.types, kind)) and not is_named(wanted.without, kind)
end

-- Whether this worker has the type and the capability that a lane's jobs need.
local function could_have(claiming, needs)
  if not accepts(claiming, needs[2]) then return false end
  return needs[1] == cjson.null or is_named(claiming.capabilities, needs[1])
end

-- How many jobs of a lane this worker may claim now.
local function room_in(pool, lane, claiming, at)
  local needs = needs_of(lane)
  if needs[7] and not claiming.may_be_alone then return 0 end
  if not could_have(claiming, needs) then return 0 end
  local group = needs[3]
  if group == cjson.null then return claiming.limit end
  return room_of_group(pool, needs, claiming.limit, at), group, needs[5] ~= cjson.null and needs[6]
end

local function take(pool, number, claiming, at)
  local row, name = load(number), job_key(number)
  if row.progress or row.note then call('HDEL', name, 'progress', 'note') end
  row.status, row.owner, row.claimed, row['until'] = 'claimed', claiming.holder, int(at), int(at + claiming.lease)
  row.epoch, row.progress, row.note = int((row.epoch or 0) + 1), nil, nil
  if row.extended or row.company then call('HDEL', name, 'extended', 'company') end
  row.extended = nil
  local fields = {'status', 'claimed', 'epoch', row.epoch, 'owner', row.owner, 'until', row['until'], 'claimed', row.claimed,
    'lease', int(claiming.lease)}
  if not claiming.ahead then
    row.attempts, row.begun = int((row.attempts or 0) + 1), int(at)
    fields[13], fields[14], fields[15], fields[16] = 'attempts', row.attempts, 'begun', row.begun
  end
  call('HSET', name, unpack(fields))
  return as_json(number, row), row.epoch
end

local function note_group(pool, group, per, number, epoch, at)
  call('HINCRBY', key(pool, 'running'), group, 1)
  if not per then return end
  local rate, rates = key(pool, 'rate:' .. group), key(pool, 'rates')
  call('ZREMRANGEBYSCORE', rate, '-inf', int(at - per))
  call('ZADD', rate, int(at), number .. ':' .. epoch)
  call('PEXPIRE', rate, int(math.ceil(per / 1000) + 1000))
  call('ZREMRANGEBYSCORE', rates, '-inf', int(at))
  call('ZADD', rates, int(at + per), group)
end

local function front(pool, lane, most, next_score, next_number)
  local found, numbers = call('ZRANGE', lane_key(pool, lane), 0, most - 1, 'WITHSCORES'), {}
  for i = 1, #found, 2 do
    local score = tonumber(found[i + 1])
    if next_score and (score > next_score or (score == next_score and found[i] > next_number)) then break end
    numbers[#numbers + 1] = found[i]
  end
  return numbers
end

local function may_claim(pool, claiming, at)
  local paused = call('HGET', key(pool, 'pool'), 'paused_until')
  if paused and tonumber(paused) > at then return false end
  local worker, home, instance = worker_of(claiming.holder)
  local status, deadline, joined = unpack(call('HMGET', key(home, 'worker:' .. worker), 'status', 'drain_deadline', 'instance'))
  if status and instance ~= '' and instance ~= joined then return false end
  return not (deadline or status == 'draining' or status == 'terminated' or status == 'error' or status == 'lost')
end

local function take_ready(pool, claiming, at)
  local taken, passed, leases, all = {}, 0, {}, {}
  while #taken < claiming.limit do
    local heads = call('ZRANGE', key(pool, 'lanes'), passed, passed + 1, 'WITHSCORES')
    if #heads == 0 then break end
    local lane = string.sub(heads[1], NUMBER + 1)
    local room, group, per = room_in(pool, lane, claiming, at)
    if room == 0 then
      passed = passed + 1
    else
      local next_number = heads[3] and string.sub(heads[3], 1, NUMBER)
      local numbers = front(pool, lane, math.min(room, claiming.limit - #taken, 500), tonumber(heads[4]), next_number)
      dequeue(pool, lane, numbers)
      for _, number in ipairs(numbers) do
        local text, epoch = take(pool, number, claiming, at)
        if group then note_group(pool, group, per, number, epoch, at) end
        taken[#taken + 1] = text
        all[#all + 1] = number
        leases[#leases + 1], leases[#leases + 2] = int(at + claiming.lease), number
      end
    end
  end
  if #all > 0 then
    add_many(key(pool, 'leases'), leases)
    for i = 1, #all, 1000 do call('SADD', held_key(claiming.holder), unpack(all, i, math.min(i + 999, #all))) end
  end
  return taken
end

-- A job that must run alone is claimed alone: in its turn by a claim of one job, otherwise only when no other job is ready.
local function claim(pool, claiming, at)
  promote(pool, at)
  if not may_claim(pool, claiming, at) then return {} end
  claiming.may_be_alone = claiming.alone and claiming.limit == 1
  local taken = take_ready(pool, claiming, at)
  if #taken > 0 or not claiming.alone or claiming.limit <= 1 then return taken end
  local limit = claiming.limit
  claiming.limit, claiming.may_be_alone = 1, true
  taken = take_ready(pool, claiming, at)
  claiming.limit = limit
  return taken
end

-- When a pause or a group's rate limit next allows a ready job; nil if neither holds back a job.
local function freed(pool, at)
  if call('ZCARD', key(pool, 'ready')) == 0 then return nil end
  local paused = tonumber(call('HGET', key(pool, 'pool'), 'paused_until') or 0)
  if paused > at then return paused end
  local soonest
  local groups = call('ZRANGEBYSCORE', key(pool, 'rates'), '(' .. int(at), '+inf', 'WITHSCORES', 'LIMIT', 0, 100)
  for i = 1, #groups, 2 do
    local rate = key(pool, 'rate:' .. groups[i])
    local newest = call('ZRANGE', rate, -1, -1, 'WITHSCORES')[2]
    local per = newest and groups[i + 1] - newest or 0
    local oldest = call('ZRANGEBYSCORE', rate, '(' .. int(at - per), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
    if oldest then soonest = math.min(soonest or math.huge, oldest + per) end
  end
  return soonest
end

-- Note that a claim found nothing. Returns the id of the last news entry and how long until a job comes due or is allowed.
local function outlook(pool, at)
  call('HSET', key(pool, 'pool'), 'waiting', 1)
  local last = call('XREVRANGE', key(pool, 'news'), '+', '-', 'COUNT', 1)
  local due = math.min(call('ZRANGE', key(pool, 'delayed'), 0, 0, 'WITHSCORES')[2] or math.huge, freed(pool, at) or math.huge)
  return last[1] and last[1][1] or '0-0', due < math.huge and int(math.max(due - at, 0)) or nil
end
