-- needs: jobs, lanes, verdicts
-- Change priority or earliest start of pending jobs; others stay as they are. Returns the ids of the changed jobs.
local pool, priority, due, at, changed = ARGV[1], given(ARGV[2]), given(ARGV[3]), now(), {}
for i = 4, #ARGV do
  local number = number_of(ARGV[i])
  local row = load(number)
  if row and row.pool == pool and row.status == 'pending' then
    local since = call('ZSCORE', key(pool, 'ready'), number)
    if call('ZREM', key(pool, 'delayed'), number) == 0 then dequeue(pool, row.lane or '', {number}) end
    if priority then set(row, 'pri', priority) end
    if due then set(row, 'not_before', int(math.max(tonumber(due), at))) end
    local start = tonumber(row.not_before or 0)
    if start > at then
      call('ZADD', key(pool, 'delayed'), int(start), number)
      news(pool)
    else
      queue(pool, row.lane or '', tonumber(row.pri or 0), number, (not due and since) or int(math.max(start, tonumber(row.created))))
    end
    save(number, row)
    changed[#changed + 1] = ARGV[i]
  end
end
flush()
return changed
