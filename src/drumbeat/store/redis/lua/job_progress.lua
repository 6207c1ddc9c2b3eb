-- needs: jobs, lanes, verdicts
-- Only the current claim may write the job's progress.
local holder, id, epoch, share, note = unpack(ARGV)
local number = number_of(id)
local row = peek(number)
if not holds(row, holder, epoch) then return 0 end
set(row, 'progress', share)
if given(note) then set(row, 'note', note) else unset(row, 'note') end
save(number, row)
return 1
