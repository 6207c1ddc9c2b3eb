-- needs: jobs, lanes, claim
-- Whether a pending job that this worker can run is due, and how long until the next is. Delayed jobs are sorted by due time.
local pool, at = ARGV[1], now()
local claiming = {capabilities = cmsgpack.unpack(ARGV[5]), types = cmsgpack.unpack(ARGV[6]), without = cmsgpack.unpack(ARGV[9])}
local ready = 0
for _, head in ipairs(call('ZRANGE', key(pool, 'lanes'), 0, -1)) do
  if could_have(claiming, needs_of(string.sub(head, NUMBER + 1))) then ready = 1; break end
end
local first = 0
repeat
  local delayed = call('ZRANGE', key(pool, 'delayed'), first, first + 99, 'WITHSCORES')
  for i = 1, #delayed, 2 do
    local wait = delayed[i + 1] - at
    if (wait > 0 or ready == 0) and could_have(claiming, needs_of(call('HGET', job_key(delayed[i]), 'lane') or '')) then
      if wait > 0 then return {ready, int(wait)} end
      ready = 1
    end
  end
  first = first + 100
until #delayed == 0
return {ready, false}
