-- needs: jobs, lanes, verdicts, flows
-- Requeue poisoned and cancelled jobs, unless another unfinished job has their unique key.
-- A job whose parents are not done waits again, also for failed ones. Parents come first: they have lower numbers.
local pool, at, wanted, requeued = ARGV[1], now(), {}, {}
for i = 2, #ARGV do wanted[#wanted + 1] = number_of(ARGV[i]) or nil end
table.sort(wanted)
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
    local policy, status, waits = row.iff == 'run' and 'run' or 'block', 'pending', 0
    if row.iff then
      local parents = call('ZRANGE', parents_key(number), 0, -1)
      note_links(pool, parents)
      status, waits = state_after(parents, row.any, policy)
    end
    if status == 'waiting' then
      set(row, 'status', 'waiting')
      set(row, 'waits', int(waits))
      set(row, 'not_before', int(due))
      call('ZADD', key(pool, 'waiting'), 0, number)
    else
      give_back(number, row, due, at)
    end
    save(number, row)
    if row.kids then reopen_children(number) end
    requeued[#requeued + 1] = row.id or string.format('j%012d', number)
  end
end
flush()
return requeued
