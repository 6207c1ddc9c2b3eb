-- needs: jobs, lanes, verdicts, flows
-- One page of the parents or children of a job that still exist, in push order, and the number to continue after. Nothing if
-- there is no such job.
local number, after, page, found = number_of(ARGV[1]), ARGV[3], tonumber(ARGV[4]), {}
if not number or call('EXISTS', job_key(number)) == 0 then return false end
local linked = ARGV[2] == 'parents' and parents_key(number) or children_key(number)
local numbers = call('ZRANGEBYLEX', linked, after == '' and '-' or '(' .. after, '+', 'LIMIT', 0, page)
for _, other in ipairs(numbers) do
  local row = load(other)
  if row then found[#found + 1] = as_json(other, row) end
end
return {as_list(found), #numbers == page and numbers[page]}
