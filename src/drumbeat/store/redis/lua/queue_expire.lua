-- needs: jobs, lanes, verdicts, flows
-- Take back the jobs whose leases have expired by this server's clock. A lease that expires for the first time is extended by
-- its length instead, because the store may have been unreachable.
local left, at, expired, begun = tonumber(ARGV[1]), now(), {}, {}
for _, pool in ipairs(call('ZRANGE', prefix .. 'pools', 0, -1)) do
  if left <= 0 then break end
  for _, number in ipairs(call('ZRANGEBYSCORE', key(pool, 'leases'), '-inf', int(at), 'LIMIT', 0, left)) do
    local row = load(number)
    if not row.extended then
      local till = int(at + (row.lease or 0))
      call('HSET', job_key(number), 'until', till, 'extended', 1)
      call('ZADD', key(pool, 'leases'), till, number)
    else
      begun[row.owner] = begun[row.owner] or count_begun(row.owner)
      lose(number, row, 'the lease of ' .. worker_of(row.owner) .. ' ran out', begun[row.owner] - 1, true, at)
      expired[#expired + 1] = as_json(number, row)
      left = left - 1
    end
  end
end
pass_on_ends(at)
flush()
return as_list(expired)
