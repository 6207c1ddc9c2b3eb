-- The last beats with actions and later than a time, newest first, among the ``page`` beats before ``last``: the bodies of beats
-- can be large, so other clients are served between pages. Returns the beats, and where to continue; nothing at the end.
local pool, since, limit, page, last = unpack(ARGV)
local rows = {}
limit, page, since = tonumber(limit), tonumber(page), given(since) and tonumber(since)
local entries = call('XREVRANGE', key(pool, 'beats'), last, '-', 'COUNT', page)
for _, entry in ipairs(entries) do
  local at, body = entry[2][2], entry[2][4]
  if since and tonumber(at) <= since then return {rows} end
  -- only beats that can have actions are decoded, as that is slow; a view can contain the same text
  if string.find(body, '"actions":[{', 1, true) and #cjson.decode(body).actions > 0 then
    rows[#rows + 1] = entry
    if #rows == limit then return {rows} end
  end
end
return {rows, #entries == page and '(' .. entries[page][1]}
