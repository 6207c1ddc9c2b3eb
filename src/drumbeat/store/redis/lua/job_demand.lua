-- needs: jobs, lanes
-- Ready jobs by the capability they need; a lane's jobs need the same one.
local pool, most, demand, answer = ARGV[1], tonumber(ARGV[2]), {}, {}
promote(pool, now())
for _, head in ipairs(call('ZRANGE', key(pool, 'lanes'), 0, -1)) do
  local lane = string.sub(head, NUMBER + 1)
  local capability = lane ~= '' and cjson.decode(lane)[1] or cjson.null
  if capability == cjson.null then capability = '' end
  demand[capability] = (demand[capability] or 0) + call('ZCARD', lane_key(pool, lane))
end
for capability, count in pairs(demand) do
  answer[#answer + 1], answer[#answer + 2] = capability, math.min(count, most)
end
return answer
