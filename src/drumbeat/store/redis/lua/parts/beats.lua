-- Find a pool's beats by time: their times rise with their numbers, so a binary search works.
local function newest_of(beats, number)
  return call('XREVRANGE', beats, number and int(number) .. '-0' or '+', '-', 'COUNT', 1)[1]
end

local function number_of(entry)
  return tonumber(string.match(entry[1], '^%d+'))
end

-- The newest beat with a view, from ``entry`` backwards; nil if there is none.
local function last_that_saw(beats, entry)
  while entry and cjson.decode(entry[2][4]).view == cjson.null do entry = newest_of(beats, number_of(entry) - 1) end
  return entry
end

-- The last beat at or before ``moment``; nil if all beats are later.
local function beat_at(beats, moment)
  local first, last = call('XRANGE', beats, '-', '+', 'COUNT', 1)[1], newest_of(beats)
  if not first then return nil end
  local low, high, found = number_of(first), number_of(last), nil
  while low <= high do
    local middle = math.floor((low + high) / 2)
    local entry = newest_of(beats, middle)
    if tonumber(entry[2][2]) <= moment then
      found, low = entry, middle + 1
    else
      high = middle - 1
    end
  end
  return found
end
