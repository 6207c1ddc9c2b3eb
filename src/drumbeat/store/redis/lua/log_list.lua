-- Log lines above a number, of a worker if one is named, at or above a level.
local pool, after, worker, least, limit = unpack(ARGV)
local rows, last = {}, '(' .. after .. '-0'
worker, least, limit = given(worker), tonumber(least), tonumber(limit)
repeat
  local entries = call('XRANGE', key(pool, 'logs'), last, '+', 'COUNT', 500)
  for _, entry in ipairs(entries) do
    local said = entry[2]
    if #rows < limit and tonumber(said[6]) >= least and (not worker or said[4] == worker) then
      rows[#rows + 1] = entry
    end
    last = '(' .. entry[1]
  end
until #entries == 0 or #rows >= limit
return rows
