-- needs: jobs, lanes, verdicts
-- Record steps of claimed jobs. Returns the places of steps whose job this worker no longer holds; these are not recorded.
-- A step: job id, epoch, position, JSON text, name if it is a wait for an event, whether that wait is over.
local holder, steps, stale = ARGV[1], cmsgpack.unpack(ARGV[2]), {}

-- Add the position of a wait to the open waits for its event, or remove it if the wait is over.
local function note_wait(number, name, position, is_over)
  local known = call('HGET', events_key(number), name) or ' '
  if known == 'sent' then return end
  local at, last = string.find(known, ' ' .. position .. ' ', 1, true)
  local open = at and string.sub(known, 1, at) .. string.sub(known, last + 1) or known
  if not is_over then open = open .. position .. ' ' end
  if open == ' ' then call('HDEL', events_key(number), name) else call('HSET', events_key(number), name, open) end
end

for n, step in ipairs(steps) do
  local number = number_of(step[1])
  local row = peek(number)
  if holds(row, holder, int(step[2])) then
    call('HSET', steps_key(number), int(step[3]), step[4])
    if not row.steps then call('HSET', job_key(number), 'steps', 1) end
    if step[5] then note_wait(number, step[5], int(step[3]), step[6]) end
  else
    stale[#stale + 1] = n - 1
  end
end
return stale
