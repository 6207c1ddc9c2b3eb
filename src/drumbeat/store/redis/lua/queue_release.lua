-- needs: fence, jobs, lanes, verdicts, flows
-- Release every job of a holder, in all pools' queues. A second call finds nothing to release.
local name, epoch, holder, failure, charge = unpack(ARGV)
admit(name, epoch)
local at, released, numbers = now(), {}, call('SMEMBERS', held_key(holder))
local others = charge == '1' and count_begun(holder) - 1 or 0
table.sort(numbers)
for _, number in ipairs(numbers) do
  local row = load(number)
  lose(number, row, failure, others, charge == '1', at)
  released[#released + 1] = as_json(number, row)
end
pass_on_ends(at)
flush()
return as_list(released)
