-- needs: jobs, lanes, verdicts, flows
-- Delete one page of a pool's old jobs of one status, with their attempts. The caller repeats this until none is left.
-- A job with an unfinished child stays.
local pool, ended, page = ARGV[1], key(ARGV[1], ARGV[2]), tonumber(ARGV[4])
local before, kept, gone = '(' .. int(now() - ARGV[3]), 0, {}
while #gone == 0 do
  local numbers = call('ZRANGEBYSCORE', ended, '-inf', before, 'LIMIT', kept, page)
  if #numbers == 0 then break end
  for _, number in ipairs(numbers) do
    local id, policy, kids, workflow, steps = unpack(call('HMGET', job_key(number), 'id', 'iff', 'kids', 'wf', 'steps'))
    if kids and has_unfinished_child(number) then
      kept = kept + 1
    else
      if id then call('HDEL', prefix .. 'job_names', id) end
      if policy or kids or workflow then forget_links(number, workflow) end
      if steps then call('UNLINK', steps_key(number), events_key(number)) end
      call('UNLINK', job_key(number), doc_key(number), tries_key(number))
      gone[#gone + 1] = number
    end
  end
end
if #gone > 0 then
  call('ZREM', ended, unpack(gone))
  call('ZREM', key(pool, 'jobs'), unpack(gone))
end
return #gone
