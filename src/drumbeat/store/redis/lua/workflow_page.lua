-- needs: jobs, lanes, verdicts, flows
-- One page of a workflow's jobs in push order: the jobs that match, and the number to continue after.
local workflow, after, page, limit, statuses = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), ',' .. ARGV[5] .. ','
local found, last = {}, after
local numbers = call('ZRANGEBYLEX', workflow_key(workflow), after == '' and '-' or '(' .. after, '+', 'LIMIT', 0, page)
for _, number in ipairs(numbers) do
  local row = load(number)
  last = number
  if row and (statuses == ',,' or string.find(statuses, ',' .. row.status .. ',', 1, true)) then
    found[#found + 1] = as_json(number, row)
  end
  if #found == limit then return {as_list(found), last} end
end
return {as_list(found), #numbers == page and last}
