-- needs: jobs, lanes, verdicts
-- Leases that have run out by this server's clock, whoever held them.
local left, at, expired = tonumber(ARGV[1]), now(), {}
for _, pool in ipairs(call('ZRANGE', prefix .. 'pools', 0, -1)) do
  if left <= 0 then break end
  for _, number in ipairs(call('ZRANGEBYSCORE', key(pool, 'leases'), '-inf', int(at), 'LIMIT', 0, left)) do
    local row = load(number)
    crash(number, row, 'the lease of ' .. worker_of(row.owner) .. ' ran out', at)
    expired[#expired + 1] = as_json(number, row)
    left = left - 1
  end
end
flush()
return as_list(expired)
