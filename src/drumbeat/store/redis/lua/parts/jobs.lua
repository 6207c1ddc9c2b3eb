-- A job is a hash under its number. The pushed document is a field of the hash or, if it is large, a key beside it, so that
-- Redis can store the hash in its compact form. ``job_names`` maps the ids that users chose to numbers.
local quoted = cjson.encode
local RAW = {
  doc = ',"doc":', result = ',"result":', progress = ',"progress":', attempts = ',"attempts":', failures = ',"failures":',
  crashes = ',"crashes":', suspicions = ',"suspicions":', begun = ',"begun":', extended = ',"extended":', epoch = ',"epoch":', cancel = ',"cancel":', ['until'] = ',"until":', not_before = ',"not_before":',
  waits = ',"waits":', any = ',"any":', kids = ',"kids":', pri = ',"pri":', steps = ',"steps":', events = ',"events":',
  created = ',"created":', owner = ',"owner":', claimed = ',"claimed":', finished = ',"finished":',
}
local QUOTED = {
  id = ',"id":', pool = ',"pool":', status = ',"status":', last_error = ',"last_error":', note = ',"note":',
  iff = ',"iff":', wf = ',"wf":',
}
local STANDING = {
  'status', 'owner', 'epoch', 'pool', 'lane', 'pri', 'uk', 'cancel', 'attempts', 'failures', 'crashes', 'suspicions', 'ma', 'mc', 'claimed', 'begun',
  'last_error', 'progress', 'note', 'id', 'until', 'company', 'extended', 'kids', 'steps', 'events',
}

local function job_key(number)
  return prefix .. 'job:' .. number
end

local function doc_key(number)
  return prefix .. 'doc:' .. number
end

local function tries_key(number)
  return prefix .. 'tries:' .. number
end

-- The steps of a job: a hash of JSON texts by position.
local function steps_key(number)
  return prefix .. 'steps:' .. number
end

-- The events of a job by name: ``sent``, or the positions of the steps that wait for it, with a space around each.
local function events_key(number)
  return prefix .. 'events:' .. number
end

-- A holder is a JSON array of pool, worker id and process; equal holders are always equal texts.
local function held_key(holder)
  return prefix .. 'held:' .. holder
end

-- The worker, its pool and its process, which is empty for a holder that never joined.
local function worker_of(holder)
  local parts = cjson.decode(holder)
  return parts[2], parts[1], parts[3]
end

local function number_of(id)
  local digits = string.match(id, '^j(%d+)$')
  if digits and #digits >= 12 and #digits <= 18 then return string.format('%015d', digits) end
  return call('HGET', prefix .. 'job_names', id)
end

-- Rows of older versions name only the worker as owner.
local function with_whole_holder(row)
  if row.owner and string.sub(row.owner, 1, 1) ~= '[' then row.owner = quoted({row.pool, row.owner, ''}) end
  return row
end

-- A job that must run alone is in a separate lane, whose name ends with this mark.
local ALONE = ',true]'

local function with_alone(lane)
  if not lane or lane == '' then return '[null,"",null,null,null,null' .. ALONE end
  if string.sub(lane, -#ALONE) == ALONE then return lane end
  return string.sub(lane, 1, -2) .. ALONE
end

local function without_alone(lane)
  if string.sub(lane, -#ALONE) ~= ALONE then return lane end
  return string.sub(lane, 1, -#ALONE - 1) .. ']'
end

local function load(number)
  if not number then return nil end
  local flat, row = call('HGETALL', job_key(number)), {}
  if #flat == 0 then return nil end
  for i = 1, #flat, 2 do row[flat[i]] = flat[i + 1] end
  row.doc, row.changed, row.gone = row.doc or call('GET', doc_key(number)), {}, {}
  return with_whole_holder(row)
end

-- A job's state without its document and result, which may be large. ``fields``: what to read instead of STANDING, status first.
local function peek(number, fields)
  if not number then return nil end
  fields = fields or STANDING
  local values, row = call('HMGET', job_key(number), unpack(fields)), {changed = {}, gone = {}}
  if not values[1] then return nil end
  for i, name in ipairs(fields) do row[name] = values[i] or nil end
  return with_whole_holder(row)
end

local function set(row, name, value)
  row[name] = value
  row.changed[#row.changed + 1] = name
  row.changed[#row.changed + 1] = value
end

local function unset(row, name)
  if row[name] then
    row[name] = nil
    row.gone[#row.gone + 1] = name
  end
end

local function save(number, row)
  if #row.gone > 0 then call('HDEL', job_key(number), unpack(row.gone)) end
  if #row.changed > 0 then call('HSET', job_key(number), unpack(row.changed)) end
  row.changed, row.gone = {}, {}
end

-- The job as one JSON text, so that the caller decodes it in one step.
local function as_json(number, row)
  local parts = {'{"n":', string.format('%.0f', number)}
  for name, value in pairs(row) do
    if RAW[name] then
      parts[#parts + 1] = RAW[name]
      parts[#parts + 1] = value
    elseif QUOTED[name] then
      parts[#parts + 1] = QUOTED[name]
      parts[#parts + 1] = quoted(value)
    end
  end
  parts[#parts + 1] = '}'
  return table.concat(parts)
end

-- JSON escapes line breaks, so the caller can split this list at ",\n" and skip a text that it cannot decode.
local function as_list(texts)
  return '[' .. table.concat(texts, ',\n') .. ']'
end
