-- Beats above a number and later than a time, oldest first. Their times rise with their numbers, so the walk begins at the end.
local pool, after, since, limit = unpack(ARGV)
local beats = key(pool, 'beats')
if not given(since) then return call('XRANGE', beats, '(' .. after .. '-0', '+', 'COUNT', limit) end
local found, last = {}, '+'
repeat
  local entries, over = call('XREVRANGE', beats, last, '(' .. after .. '-0', 'COUNT', 100), false
  for _, entry in ipairs(entries) do
    if tonumber(entry[2][2]) <= tonumber(since) then
      over = true
      break
    end
    found[#found + 1] = entry
    last = '(' .. entry[1]
  end
until over or #entries == 0
local rows = {}
for i = #found, math.max(1, #found - limit + 1), -1 do rows[#rows + 1] = found[i] end
return rows
