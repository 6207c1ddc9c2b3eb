-- A pool's instructions: the events that workers obey. A sorted set lists them by addressee and number, so that a new worker
-- finds its instructions among many events that only record what happened to other workers.
local FACTS = {WORKER_MOVED = true, SCALE_DOWN = true, GUARDRAIL_WARNING = true, WAITING_FOR_WORKERS = true}
local DIGITS = 16

-- The addressee of an event: all workers, one worker, or the worker in one slot.
local function addressee(scope, worker, slot)
  if scope == 'WORKER' then return 'WORKER\0' .. (worker or '') end
  if scope == 'WORKER_GROUP' then return 'WORKER_GROUP\0' .. (slot or '') end
  return 'RUN'
end

local function instruction(to, number)
  return to .. '\0' .. string.format('%0' .. DIGITS .. '.0f', number)
end

local function note_instruction(pool, number, kind, scope, worker, slot)
  if not FACTS[kind] then call('ZADD', key(pool, 'instructions'), 0, instruction(addressee(scope, worker, slot), number)) end
end

-- The numbers of the first instructions for an addressee after an event, at most `most`.
local function instructions_after(pool, to, after, most)
  local last, found = to .. '\0' .. string.rep('9', DIGITS), {}
  local members = call('ZRANGEBYLEX', key(pool, 'instructions'), '(' .. instruction(to, after), '[' .. last, 'LIMIT', 0, most)
  for n, member in ipairs(members) do found[n] = tonumber(string.sub(member, -DIGITS)) end
  return found
end

local function named(entry)
  local event = {}
  for i = 1, #entry, 2 do event[entry[i]] = entry[i + 1] end
  return event
end

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
  note_instruction(pool, number, kind, scope, worker, slot)
  return number
end
