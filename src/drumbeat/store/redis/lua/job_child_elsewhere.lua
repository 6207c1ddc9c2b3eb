-- needs: jobs, lanes, verdicts, flows
-- Look in one page of a pool's jobs for a parent of another pool's unfinished job. Returns that unfinished job, or the number
-- of the job after which to continue.
local pool, after, page = ARGV[1], ARGV[2], tonumber(ARGV[3])
local numbers = call('ZRANGEBYLEX', key(pool, 'jobs'), after == '' and '-' or '(' .. after, '+', 'LIMIT', 0, page)
for _, number in ipairs(numbers) do
  if call('HGET', job_key(number), 'kids') then
    local child = child_elsewhere(number, pool)
    if child then return {as_json(child, load(child)), false} end
  end
end
return {false, #numbers == page and numbers[page]}
