-- needs: jobs, lanes, verdicts, flows
-- Delete the old jobs in one page of a pool's jobs of one status, with their attempts. A job with an unfinished or
-- poisoned child stays, and is skipped by the next call: returns how many jobs were deleted, and how many to skip if there may be more.
local pool, ended, page, skip = ARGV[1], key(ARGV[1], ARGV[2]), tonumber(ARGV[4]), tonumber(ARGV[5])
local before, gone = '(' .. int(now() - ARGV[3]), {}
local numbers = call('ZRANGEBYSCORE', ended, '-inf', before, 'LIMIT', skip, page)
for _, number in ipairs(numbers) do
  local id, policy, kids, workflow, steps = unpack(call('HMGET', job_key(number), 'id', 'iff', 'kids', 'wf', 'steps'))
  if kids and is_needed(number) then
    skip = skip + 1
  else
    if id then call('HDEL', prefix .. 'job_names', id) end
    if policy or kids or workflow then forget_links(number, workflow) end
    if steps then call('UNLINK', steps_key(number), events_key(number)) end
    call('UNLINK', job_key(number), doc_key(number), tries_key(number))
    gone[#gone + 1] = number
  end
end
if #gone > 0 then
  call('ZREM', ended, unpack(gone))
  call('ZREM', key(pool, 'jobs'), unpack(gone))
  call('HINCRBY', key(pool, 'pool'), 'pruned_' .. ARGV[2], #gone)
end
return {#gone, #numbers == page and skip}
