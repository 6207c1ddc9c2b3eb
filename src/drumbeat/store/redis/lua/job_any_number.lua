-- needs: jobs
-- A job's number, in whatever pool it is.
local number = number_of(ARGV[1])
if number and call('EXISTS', job_key(number)) == 1 then return number end
return false
