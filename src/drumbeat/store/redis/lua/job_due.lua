-- needs: jobs, lanes, claim
-- How long until a pending job comes due that this worker could have. Delayed jobs lie in the order in which they come due.
local pool, at = ARGV[1], now()
local claiming = {capabilities = cmsgpack.unpack(ARGV[5]), types = cmsgpack.unpack(ARGV[6])}
for _, head in ipairs(call('ZRANGE', key(pool, 'lanes'), 0, -1)) do
  if could_have(claiming, needs_of(string.sub(head, NUMBER + 1))) then return '0' end
end
local first = 0
repeat
  local delayed = call('ZRANGE', key(pool, 'delayed'), first, first + 99, 'WITHSCORES')
  for i = 1, #delayed, 2 do
    local lane = call('HGET', job_key(delayed[i]), 'lane')
    if could_have(claiming, needs_of(lane or '')) then return int(math.max(delayed[i + 1] - at, 0)) end
  end
  first = first + 100
until #delayed == 0
return nil
