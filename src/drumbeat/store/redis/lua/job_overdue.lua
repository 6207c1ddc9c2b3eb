-- needs: jobs, lanes, claim
-- How long until the first claim that was not renewed can be taken back, among the jobs that this worker can run. Claims are
-- sorted by the time they expire.
local pool, at = ARGV[1], now()
local claiming = {capabilities = cmsgpack.unpack(ARGV[5]), types = cmsgpack.unpack(ARGV[6]), without = cmsgpack.unpack(ARGV[9])}
local claims = call('ZRANGE', key(pool, 'leases'), 0, -1, 'WITHSCORES')
for i = 1, #claims, 2 do
  local lane, extended = unpack(call('HMGET', job_key(claims[i]), 'lane', 'extended'))
  local till = tonumber(claims[i + 1])
  if (extended or till <= at) and could_have(claiming, needs_of(lane or '')) then return int(math.max(till - at, 0)) end
end
return nil
