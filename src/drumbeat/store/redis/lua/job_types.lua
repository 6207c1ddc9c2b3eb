-- needs: jobs, lanes, claim
-- Count ready jobs by type, which is the same for all jobs of a lane. Lanes of excluded types are skipped.
local pool, most, counted, answer = ARGV[1], tonumber(ARGV[2]), {}, {}
local wanted_types = {types = cmsgpack.unpack(ARGV[3]), without = cmsgpack.unpack(ARGV[4])}
promote(pool, now())
for _, head in ipairs(call('ZRANGE', key(pool, 'lanes'), 0, -1)) do
  local lane = string.sub(head, NUMBER + 1)
  local kind = needs_of(lane)[2]
  if accepts(wanted_types, kind) then counted[kind] = (counted[kind] or 0) + call('ZCARD', lane_key(pool, lane)) end
end
for kind, count in pairs(counted) do answer[#answer + 1], answer[#answer + 2] = kind, math.min(count, most) end
return answer
