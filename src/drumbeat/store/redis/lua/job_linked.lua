-- needs: jobs, lanes, verdicts, flows
-- The parents or children of a job that still exist, in push order; nothing if there is no such job.
local number, found = number_of(ARGV[1]), {}
if not number or call('EXISTS', job_key(number)) == 0 then return false end
local linked = ARGV[2] == 'parents' and parents_key(number) or children_key(number)
for _, other in ipairs(call('ZRANGE', linked, 0, ARGV[3] - 1)) do
  local row = load(other)
  if row then found[#found + 1] = as_json(other, row) end
end
return as_list(found)
