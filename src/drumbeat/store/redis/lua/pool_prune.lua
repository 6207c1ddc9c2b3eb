-- needs: tell, moves, beats
-- Delete one page of a pool's old samples, log lines, beats, events or ended workers. The caller repeats this until none is left. The
-- newest beat and the newest beat with a view stay. Of a fleet, workers that may still cost money or count for the current
-- month stay.
local pool, what, before, billed, page = ARGV[1], ARGV[2], now() - ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local prune = {}

function prune.samples()
  local old = call('ZRANGEBYSCORE', key(pool, 'samples'), '-inf', '(' .. int(before), 'LIMIT', 0, page)
  if #old == 0 then return 0 end
  call('HDEL', key(pool, 'sample_bodies'), unpack(old))
  return call('ZREM', key(pool, 'samples'), unpack(old))
end

local function drop_entries(stream, kept)
  local old = {}
  for _, entry in ipairs(call('XRANGE', stream, '-', '+', 'COUNT', page)) do
    if tonumber(entry[2][2]) < before and not kept[entry[1]] then old[#old + 1] = entry[1] end
  end
  if #old == 0 then return 0 end
  return call('XDEL', stream, unpack(old))
end

function prune.logs()
  return drop_entries(key(pool, 'logs'), {})
end

function prune.beats()
  local kept, beats = {}, key(pool, 'beats')
  for _, entry in pairs({newest_of(beats), last_that_saw(beats, newest_of(beats))}) do kept[entry[1]] = true end
  return drop_entries(beats, kept)
end

-- Instructions for several workers stay: workers that join later must read them too.
function prune.events()
  local from, old, addressed, is_young = '-', {}, {}, false
  repeat
    local entries = call('XRANGE', key(pool, 'events'), from, '+', 'COUNT', page)
    for _, entry in ipairs(entries) do
      local event = named(entry[2])
      if tonumber(event.at) >= before then is_young = true break end
      if FACTS[event.type] or event.scope == 'WORKER' then old[#old + 1] = entry[1] end
      if event.scope == 'WORKER' then
        addressed[#addressed + 1] = instruction(addressee('WORKER', event.worker_id), tonumber(string.match(entry[1], '^%d+')))
      end
      from = '(' .. entry[1]
    end
  until #entries < page or #old > 0 or is_young
  if #addressed > 0 then call('ZREM', key(pool, 'instructions'), unpack(addressed)) end
  return #old > 0 and call('XDEL', key(pool, 'events'), unpack(old)) or 0
end

-- A worker is reaped after it has ended, so the reaped set holds only ended workers.
function prune.workers()
  local kind, policy = unpack(call('HMGET', key(pool, 'pool'), 'kind', 'policy'))
  local is_scaled = kind == 'fleet' or (kind == 'jobs' and cjson.decode(policy).policy ~= nil)
  local until_ = is_scaled and math.min(before, billed) or before
  local old = call('ZRANGEBYSCORE', key(pool, is_scaled and 'reaped' or 'ended'), '-inf', '(' .. int(until_), 'LIMIT', 0, page)
  for _, worker in ipairs(old) do drop_worker(pool, worker) end
  return #old
end

return prune[what]()
