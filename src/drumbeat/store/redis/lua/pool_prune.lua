-- needs: tell, moves
-- A pool's samples, log lines, beats and ended workers of an age. The last beat stays, and so do the numbers.
local pool, before, gone = ARGV[1], now() - ARGV[2], {0, 0, 0, 0}

local old = call('ZRANGEBYSCORE', key(pool, 'samples'), '-inf', '(' .. int(before))
for _, name in ipairs(old) do call('HDEL', key(pool, 'sample_bodies'), name) end
gone[1] = call('ZREMRANGEBYSCORE', key(pool, 'samples'), '-inf', '(' .. int(before))

local function drop_entries(stream, keep)
  local dropped, last = 0, '-'
  repeat
    local entries = call('XRANGE', stream, last, '+', 'COUNT', 500)
    for _, entry in ipairs(entries) do
      last = '(' .. entry[1]
      if tonumber(entry[2][2]) < before and entry[1] ~= keep then dropped = dropped + call('XDEL', stream, entry[1]) end
    end
  until #entries == 0
  return dropped
end
gone[2] = drop_entries(key(pool, 'logs'))
local last_beat = call('XREVRANGE', key(pool, 'beats'), '+', '-', 'COUNT', 1)[1]
gone[3] = drop_entries(key(pool, 'beats'), last_beat and last_beat[1])

for _, worker in ipairs(call('ZRANGE', key(pool, 'workers'), 0, -1)) do
  local ended = call('HGET', worker_key(pool, worker), 'ended_at')
  if ended and tonumber(ended) < before then
    call('DEL', worker_key(pool, worker))
    gone[4] = gone[4] + call('ZREM', key(pool, 'workers'), worker)
  end
end
return gone
