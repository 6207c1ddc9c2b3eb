-- needs: jobs, lanes, claim
-- Count ready jobs by the capability they need, which is the same for all jobs of a lane. Of a group, over all its lanes, only
-- as many jobs count as its limits allow.
local pool, most, at, demand, counted, answer = ARGV[1], tonumber(ARGV[2]), now(), {}, {}, {}
local wanted_types = {types = cmsgpack.unpack(ARGV[3]), without = cmsgpack.unpack(ARGV[4])}
promote(pool, at)
for _, head in ipairs(call('ZRANGE', key(pool, 'lanes'), 0, -1)) do
  local lane = string.sub(head, NUMBER + 1)
  local needs = needs_of(lane)
  local wanted = accepts(wanted_types, needs[2])
  local capability, group, jobs = needs[1], needs[3], wanted and call('ZCARD', lane_key(pool, lane)) or 0
  if capability == cjson.null then capability = '' end
  if group ~= cjson.null and (needs[4] ~= cjson.null or needs[5] ~= cjson.null) then
    local before = counted[group] or 0
    jobs = math.min(jobs, math.max(room_of_group(pool, needs, before + jobs, at) - before, 0))
    counted[group] = before + jobs
  end
  demand[capability] = (demand[capability] or 0) + jobs
end
for capability, count in pairs(demand) do
  if count > 0 then answer[#answer + 1], answer[#answer + 2] = capability, math.min(count, most) end
end
return answer
