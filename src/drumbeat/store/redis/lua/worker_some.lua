-- needs: tell, moves
-- The rows of live workers, of unreaped workers (the earliest ended first, up to a limit), of workers reaped since a time, and
-- of named workers; each once, in the order of their creation.
local pool, most, since = ARGV[1], tonumber(ARGV[2]), given(ARGV[3])
local found, names, rows = {}, {}, {}
local function add(worker)
  local place = not found[worker] and call('ZSCORE', key(pool, 'workers'), worker)
  if not place then return end
  found[worker] = tonumber(place)
  names[#names + 1] = worker
end

for _, worker in ipairs(call('ZRANGE', key(pool, 'live'), 0, -1)) do add(worker) end
for _, worker in ipairs(call('ZRANGE', key(pool, 'unreaped'), 0, most - 1)) do add(worker) end
if since then
  for _, worker in ipairs(call('ZRANGEBYSCORE', key(pool, 'reaped'), since, '+inf')) do add(worker) end
end
for i = 4, #ARGV do add(ARGV[i]) end
table.sort(names, function(a, b) return found[a] < found[b] end)
for n, worker in ipairs(names) do rows[n] = call('HGETALL', worker_key(pool, worker)) end
return rows
