-- The beginning of every script. KEYS[1] is the prefix of all our keys; the keys of one pool share its hash tag.
-- A script first checks, then writes: Redis has no rollback, so a script that refuses must not have written anything.
local call, prefix = redis.call, KEYS[1]
local ESCAPES = {['%'] = '%25', ['{'] = '%7B', ['}'] = '%7D'}

local function key(pool, name)
  return prefix .. '{' .. (string.gsub(pool, '[%%{}]', ESCAPES)) .. '}:' .. name
end

local function refuse(kind, why)
  error({refused = kind, why = why}, 0)
end

local function given(argument)
  if argument ~= '\0' then return argument end
end

local function int(number)
  return string.format('%.0f', number)
end

local function expect_pool(pool)
  if call('EXISTS', key(pool, 'pool')) == 0 then
    refuse('NotFound', 'there is no pool \'' .. pool .. '\'; see: drumbeat pools list')
  end
end

local function expect_jobs_pool(pool)
  if call('HGET', key(pool, 'pool'), 'kind') ~= 'jobs' then
    refuse('NotFound', 'there is no pool of jobs \'' .. pool .. '\'; create it, or see which there are: drumbeat pools list')
  end
end
