-- Samples of an interval of time, oldest first, of a worker if one is named.
local pool, since, till, worker, limit = unpack(ARGV)
local rows, offset, suffix = {}, 0, given(worker) and (':' .. worker)
limit = tonumber(limit)
repeat
  local found = call('ZRANGEBYSCORE', key(pool, 'samples'), since, till, 'WITHSCORES', 'LIMIT', offset, 500)
  for i = 1, #found, 2 do
    if #rows < limit and (not suffix or string.sub(found[i], 17) == suffix) then
      rows[#rows + 1] = {string.sub(found[i], 18), found[i + 1], call('HGET', key(pool, 'sample_bodies'), found[i])}
    end
  end
  offset = offset + 500
until #found == 0 or #rows >= limit
return rows
