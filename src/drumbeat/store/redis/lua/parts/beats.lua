-- A pool's beats by time. Their times rise with their numbers, so a few looks find the one that stood at a moment.
local function newest_of(beats, number)
  return call('XREVRANGE', beats, number and int(number) .. '-0' or '+', '-', 'COUNT', 1)[1]
end

local function number_of(entry)
  return tonumber(string.match(entry[1], '^%d+'))
end

-- The last beat, from this one backwards, that holds what it saw; nil if none does.
local function last_that_saw(beats, entry)
  while entry and cjson.decode(entry[2][4]).view == cjson.null do entry = newest_of(beats, number_of(entry) - 1) end
  return entry
end

-- The last beat that is not later than a moment; nil if all are.
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
