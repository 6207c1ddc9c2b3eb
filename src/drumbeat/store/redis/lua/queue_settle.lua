-- needs: jobs, lanes, claim, verdicts, flows
-- Apply each outcome if the job's current claim is still the same, then claim more jobs.
-- An outcome: job id, epoch, outcome, result or nil, error or nil, retry delay, fatal, known events or nil.
local holder, verdicts, pool = ARGV[1], cmsgpack.unpack(ARGV[2]), given(ARGV[3])
if pool then expect_pool(pool) end
local at, stale = now(), {}
for n, verdict in ipairs(verdicts) do
  local number = number_of(verdict[1])
  local row = peek(number)
  if holds(row, holder, int(verdict[2])) then
    settle(number, row, verdict[3], verdict[4], verdict[5], verdict[6], verdict[7], verdict[8], at)
  else
    stale[#stale + 1] = n - 1
  end
end
pass_on_ends(at)
flush()
if not pool then return {stale} end
local claiming = {holder = ARGV[4], lease = tonumber(ARGV[5]), limit = tonumber(ARGV[6])}
claiming.capabilities, claiming.types = cmsgpack.unpack(ARGV[7]), cmsgpack.unpack(ARGV[8])
claiming.ahead, claiming.alone, claiming.without = ARGV[9] == '1', ARGV[10] == '1', cmsgpack.unpack(ARGV[11])
local taken = claim(pool, claiming, at)
if #taken == claiming.limit then return {stale, as_list(taken)} end
return {stale, as_list(taken), outlook(pool, at)}
