-- needs: jobs, lanes, verdicts, flows
-- Count a workflow's jobs by status.
local counted, answer = {}, {}
for _, number in ipairs(call('ZRANGE', workflow_key(ARGV[1]), 0, -1)) do
  local status = call('HGET', job_key(number), 'status')
  if status then counted[status] = (counted[status] or 0) + 1 end
end
for status, count in pairs(counted) do answer[#answer + 1], answer[#answer + 2] = status, int(count) end
return answer
