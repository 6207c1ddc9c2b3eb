-- Number and store an event. Both happen in one script, so the numbers have no gaps.
local function tell(pool, at, kind, scope, worker, slot, payload)
  local number = call('HINCRBY', key(pool, 'pool'), 'last_event', 1)
  local entry = {'type', kind, 'scope', scope, 'payload', payload, 'at', int(at)}
  if worker then
    entry[#entry + 1] = 'worker_id'
    entry[#entry + 1] = worker
  end
  if slot then
    entry[#entry + 1] = 'slot'
    entry[#entry + 1] = slot
  end
  call('XADD', key(pool, 'events'), int(number) .. '-0', unpack(entry))
  return number
end
