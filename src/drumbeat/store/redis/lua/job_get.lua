-- needs: jobs
-- One job, or nothing.
local number = number_of(ARGV[1])
local row = load(number)
return row and as_json(number, row) or false
