-- needs: jobs, lanes, verdicts
-- Renew claims. Claims that this worker no longer holds are returned and not changed.
local holder, tokens, lease = ARGV[1], cmsgpack.unpack(ARGV[2]), ARGV[3]
local till, stale, cancelled = int(now() + lease), {}, {}
for n, token in ipairs(tokens) do
  local number = number_of(token[1])
  local row = peek(number)
  if holds(row, holder, int(token[2])) then
    call('HSET', job_key(number), 'until', till, 'lease', int(lease))
    call('HDEL', job_key(number), 'extended', 'company')
    call('ZADD', key(row.pool, 'leases'), till, number)
    if row.cancel then cancelled[#cancelled + 1] = n - 1 end
  else
    stale[#stale + 1] = n - 1
  end
end
return {stale, cancelled}
