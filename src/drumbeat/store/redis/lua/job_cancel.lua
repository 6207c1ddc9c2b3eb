-- needs: jobs, lanes, verdicts, flows
-- A pending or waiting job ends at once; a claimed job is marked, and its worker learns of it at the next lease renewal.
local at, changed = now(), {}
for _, id in ipairs(ARGV) do
  local number = number_of(id)
  local row = load(number)
  if row and row.status == 'pending' then
    if call('ZREM', key(row.pool, 'delayed'), number) == 0 then dequeue(row.pool, row.lane or '', {number}) end
    end_as(number, row, 'cancelled', at)
  elseif row and row.status == 'waiting' then
    stop_waiting(number, row)
    end_as(number, row, 'cancelled', at)
  elseif row and row.status == 'claimed' then
    set(row, 'cancel', 'true')
  else
    row = nil
  end
  if row then
    save(number, row)
    changed[#changed + 1] = as_json(number, row)
  end
end
pass_on_ends(at)
flush()
return as_list(changed)
