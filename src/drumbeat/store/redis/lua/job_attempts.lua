-- needs: jobs
-- The job and its closed attempts. An open or successful last attempt is in the job's row.
local number = number_of(ARGV[1])
local row = load(number)
if not row then return false end
return {as_json(number, row), as_list(call('LRANGE', tries_key(number), 0, -1))}
