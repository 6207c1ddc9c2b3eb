-- Every pool, oldest first.
local rows = {}
for n, pool in ipairs(call('ZRANGE', prefix .. 'pools', 0, -1)) do
  rows[n] = call('HGETALL', key(pool, 'pool'))
end
return rows
