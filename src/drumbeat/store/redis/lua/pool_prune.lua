-- needs: tell, moves, beats
-- A pool's samples, log lines, beats and ended workers of an age. The last beat stays, and the last that
-- saw something, and so do the numbers; of a fleet's
-- workers those that may still cost money, and those that count for the running month.
local pool, before, billed, gone = ARGV[1], now() - ARGV[2], tonumber(ARGV[3]), {0, 0, 0, 0}

local old = call('ZRANGEBYSCORE', key(pool, 'samples'), '-inf', '(' .. int(before))
for _, name in ipairs(old) do call('HDEL', key(pool, 'sample_bodies'), name) end
gone[1] = call('ZREMRANGEBYSCORE', key(pool, 'samples'), '-inf', '(' .. int(before))

local function drop_entries(stream, keep)
  local dropped, last = 0, '-'
  repeat
    local entries = call('XRANGE', stream, last, '+', 'COUNT', 500)
    for _, entry in ipairs(entries) do
      last = '(' .. entry[1]
      if tonumber(entry[2][2]) < before and not (keep and keep[entry[1]]) then dropped = dropped + call('XDEL', stream, entry[1]) end
    end
  until #entries == 0
  return dropped
end
gone[2] = drop_entries(key(pool, 'logs'))
local kept, beats = {}, key(pool, 'beats')
for _, entry in pairs({newest_of(beats), last_that_saw(beats, newest_of(beats))}) do kept[entry[1]] = true end
gone[3] = drop_entries(beats, kept)

local kind, policy = unpack(call('HMGET', key(pool, 'pool'), 'kind', 'policy'))
local is_scaled = kind == 'fleet' or (kind == 'jobs' and cjson.decode(policy).policy ~= nil)
for _, worker in ipairs(call('ZRANGE', key(pool, 'workers'), 0, -1)) do
  local ended, reaped = unpack(call('HMGET', worker_key(pool, worker), 'ended_at', 'reaped_at'))
  local counts = is_scaled and (not reaped or tonumber(reaped) >= billed)
  if ended and tonumber(ended) < before and not counts then
    gone[4] = gone[4] + drop_worker(pool, worker)
  end
end
return gone
