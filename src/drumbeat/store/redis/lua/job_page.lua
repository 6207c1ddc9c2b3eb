-- needs: jobs
-- One page of a pool's jobs in the order of their pushing: what fits, and the number to go on from. Pages keep the server free.
local pool, after, page, limit = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local statuses, kind, group = ',' .. ARGV[5] .. ',', given(ARGV[6]), given(ARGV[7])
local worker, holder = given(ARGV[8]), given(ARGV[9])

local function fits(row)
  if statuses ~= ',,' and not string.find(statuses, ',' .. row.status .. ',', 1, true) then return false end
  if holder and row.owner ~= holder then return false end
  if worker then
    if not row.owner then return false end
    local name, home = worker_of(row.owner)
    if name ~= worker or home ~= pool then return false end
  end
  local needs = row.lane and cjson.decode(row.lane) or {cjson.null, '', cjson.null}
  return (not kind or needs[2] == kind) and (not group or needs[3] == group)
end

local found, last = {}, after
local numbers = call('ZRANGEBYLEX', key(pool, 'jobs'), '(' .. after, '+', 'LIMIT', 0, page)
for _, number in ipairs(numbers) do
  local row = load(number)
  last = number
  if fits(row) then found[#found + 1] = as_json(number, row) end
  if #found == limit then return {as_list(found), last} end
end
if #numbers < page then return {as_list(found), false} end
return {as_list(found), last}
