-- needs: jobs, lanes
-- How many ready jobs would be claimed before this one: the sum of its positions in every lane, found by binary search.
local pool, priority, most, at = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[4]), now()
local number, ahead = number_of(ARGV[3]), 0
promote(pool, at)
for _, head in ipairs(call('ZRANGE', key(pool, 'lanes'), 0, -1)) do
  local lane = lane_key(pool, string.sub(head, NUMBER + 1))
  local low, high = 0, call('ZCARD', lane)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local found = call('ZRANGE', lane, middle, middle, 'WITHSCORES')
    local score = tonumber(found[2])
    if score < 0 - priority or (score == 0 - priority and found[1] < number) then low = middle + 1 else high = middle end
  end
  ahead = ahead + low
  if ahead >= most then return most end
end
return ahead
