-- needs: jobs
-- A job's number, if this pool has it.
local number = number_of(ARGV[2])
if number and call('HGET', job_key(number), 'pool') == ARGV[1] then return number end
return false
