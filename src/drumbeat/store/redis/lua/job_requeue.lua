-- needs: jobs, lanes, verdicts
-- Requeue poisoned and cancelled jobs, unless another unfinished job has their unique key. Without ids: every poisoned job.
local pool, at, wanted, requeued = ARGV[1], now(), {}, {}
if ARGV[2] == 'every' then
  wanted = call('ZRANGE', key(pool, 'poisoned'), 0, -1)
  table.sort(wanted)
else
  for i = 3, #ARGV do wanted[#wanted + 1] = number_of(ARGV[i]) or nil end
end
for _, number in ipairs(wanted) do
  local row = load(number)
  local ended = row and row.pool == pool and (row.status == 'poisoned' or row.status == 'cancelled')
  if ended and not (row.uk and call('HEXISTS', key(pool, 'unique'), row.uk) == 1) then
    call('ZREM', key(pool, row.status), number)
    call('ZADD', key(pool, 'unfinished'), 0, number)
    if row.uk then call('HSET', key(pool, 'unique'), row.uk, number) end
    local tried = row.failures or row.crashes or row.suspicions
    local due = tried and at or math.max(tonumber(row.not_before or 0), at)
    for _, name in ipairs({'failures', 'crashes', 'suspicions', 'cancel', 'finished'}) do unset(row, name) end
    if row.lane then set(row, 'lane', without_alone(row.lane)) end
    give_back(number, row, due, at)
    save(number, row)
    requeued[#requeued + 1] = row.id or string.format('j%012d', number)
  end
end
flush()
return requeued
