-- needs: jobs, lanes, verdicts
-- Count an attempt once, even if ``begin`` is repeated. Returns the claims that this worker no longer holds.
local holder, tokens, at, stale = ARGV[1], cmsgpack.unpack(ARGV[2]), int(now()), {}
for n, token in ipairs(tokens) do
  local number = number_of(token[1])
  local row = peek(number)
  if not holds(row, holder, int(token[2])) then
    stale[#stale + 1] = n - 1
  elseif not row.begun then
    call('HSET', job_key(number), 'begun', at, 'attempts', int((row.attempts or 0) + 1))
  end
end
return stale
