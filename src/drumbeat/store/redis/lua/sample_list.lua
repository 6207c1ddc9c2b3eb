-- Samples of a time interval, oldest first, of a worker if one is named, on request only samples with errors or failed connects.
-- cmsgpack cannot decode a body, because it has binary fields. So the body is searched for the names of the two counts.
local function counts_failures(body)
  local _, last = string.find(body, '\166errors', 1, true)
  return (last and string.byte(body, last + 1) ~= 0) or string.find(body, '\175failed_connects', 1, true)
end

local pool, since, till, worker, failed, limit = unpack(ARGV)
local rows, offset, suffix = {}, 0, given(worker) and (':' .. worker)
limit = tonumber(limit)
repeat
  local found = call('ZRANGEBYSCORE', key(pool, 'samples'), since, till, 'WITHSCORES', 'LIMIT', offset, 500)
  for i = 1, #found, 2 do
    if #rows < limit and (not suffix or string.sub(found[i], 17) == suffix) then
      local body = call('HGET', key(pool, 'sample_bodies'), found[i])
      if failed == '0' or counts_failures(body) then
        rows[#rows + 1] = {string.sub(found[i], 18), found[i + 1], body}
      end
    end
  end
  offset = offset + 500
until #found == 0 or #rows >= limit
return rows
