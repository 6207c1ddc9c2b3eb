-- Every note: its name, its time, its body.
local rows, kept = {}, call('HGETALL', prefix .. 'notes')
for i = 1, #kept, 2 do
  local space = string.find(kept[i + 1], ' ', 1, true)
  rows[#rows + 1] = {kept[i], string.sub(kept[i + 1], 1, space - 1), string.sub(kept[i + 1], space + 1)}
end
return rows
