-- needs: jobs
-- One page of a pool's jobs in push order: the jobs that match, and the number to continue after. Pages keep scripts short.
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

-- The sets of each status. Few jobs are sorted by number here; many are read from a set that is sorted by number already.
local PLACES = {waiting = {'waiting'}, pending = {'ready', 'delayed'}, claimed = {'leases'}, done = {'done'}, poisoned = {'poisoned'}, cancelled = {'cancelled'}}
local FEW = 10000

local function places()
  local names, ended = {}, false
  for status in string.gmatch(ARGV[5], '[^,]+') do
    ended = ended or not (status == 'waiting' or status == 'pending' or status == 'claimed')
    for _, name in ipairs(PLACES[status]) do names[#names + 1] = name end
  end
  return names, ended or #names == 0
end

local function sorted_numbers(names)
  local numbers = {}
  for _, name in ipairs(names) do
    for _, number in ipairs(call('ZRANGE', key(pool, name), 0, -1)) do
      if number > after then numbers[#numbers + 1] = number end
    end
  end
  table.sort(numbers)
  return {unpack(numbers, 1, math.min(page, #numbers))}
end

local function next_numbers()
  local names, ended = places()
  local many = 0
  for _, name in ipairs(names) do many = many + call('ZCARD', key(pool, name)) end
  if #names > 0 and many <= FEW then return sorted_numbers(names) end
  return call('ZRANGEBYLEX', key(pool, ended and 'jobs' or 'unfinished'), '(' .. after, '+', 'LIMIT', 0, page)
end

local found, last = {}, after
local numbers = next_numbers()
for _, number in ipairs(numbers) do
  local row = load(number)
  last = number
  if fits(row) then found[#found + 1] = as_json(number, row) end
  if #found == limit then return {as_list(found), last} end
end
if #numbers < page then return {as_list(found), false} end
return {as_list(found), last}
