-- The last beats with actions and later than a time, newest first; looks only at the pool's last ``among`` beats.
local pool, since, limit, among = unpack(ARGV)
local rows, last, left = {}, '+', tonumber(among)
limit, since = tonumber(limit), given(since) and tonumber(since)
while left > 0 and #rows < limit do
  local entries = call('XREVRANGE', key(pool, 'beats'), last, '-', 'COUNT', math.min(left, 200))
  if #entries == 0 then return rows end
  for _, entry in ipairs(entries) do
    local at, body = entry[2][2], entry[2][4]
    if since and tonumber(at) <= since then return rows end
    -- only beats that can have actions are decoded, as that is slow; a view can contain the same text
    if #rows < limit and string.find(body, '"actions":[{', 1, true) and #cjson.decode(body).actions > 0 then
      rows[#rows + 1] = entry
    end
    last = '(' .. entry[1]
  end
  left = left - #entries
end
return rows
