-- needs: jobs
-- The steps of a job and the events that were sent to it, in no order; nothing if there is no such job.
local number = number_of(ARGV[1])
if not number or call('EXISTS', job_key(number)) == 0 then return false end
return as_list(call('HVALS', steps_key(number)))
