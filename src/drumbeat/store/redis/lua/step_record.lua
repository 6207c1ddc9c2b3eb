-- needs: jobs, lanes, verdicts
-- Record steps of claimed jobs. Returns the places of steps whose job this worker no longer holds; these are not recorded.
-- A step: job id, epoch, position, JSON text, name if it is a wait for an event, whether that wait is over.
local holder, steps, stale = ARGV[1], cmsgpack.unpack(ARGV[2]), {}
for n, step in ipairs(steps) do
  local number = number_of(step[1])
  local row = peek(number)
  if holds(row, holder, int(step[2])) then
    call('HSET', steps_key(number), int(step[3]), step[4])
    if not row.steps then call('HSET', job_key(number), 'steps', 1) end
    if step[5] then
      local known = call('HGET', events_key(number), step[5])
      if not known and not step[6] then call('HSET', events_key(number), step[5], 'wait') end
      if known == 'wait' and step[6] then call('HDEL', events_key(number), step[5]) end
    end
  else
    stale[#stale + 1] = n - 1
  end
end
return stale
