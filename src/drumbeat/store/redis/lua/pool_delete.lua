-- needs: tell, moves, jobs, lanes, verdicts, flows
-- In one script, so no worker joins between the check for live workers and the deletion. Leases stay: an epoch is never reused.
-- Returns the id and the pool of an unfinished job of another pool that has a parent in this pool; then nothing is deleted.
-- Returns 1 if there are unfinished jobs and these are not to be deleted; then nothing is deleted either.
local pool, unfinished = ARGV[1], ARGV[2] == '1'
local live = call('ZRANGE', key(pool, 'live'), 0, 4)
if #live > 0 then
  local many = call('ZCARD', key(pool, 'live'))
  refuse('Refused', 'pool ' .. pool .. ' has ' .. many .. ' live workers (' .. table.concat(live, ', ') .. '); drain them first')
end
if not unfinished and call('ZCARD', key(pool, 'unfinished')) > 0 then return 1 end
local numbers = call('ZRANGE', key(pool, 'jobs'), 0, -1)
for _, number in ipairs(numbers) do
  if call('HGET', job_key(number), 'kids') then
    local child, home = child_elsewhere(number, pool)
    if child then return {call('HGET', job_key(child), 'id') or string.format('j%012d', child), home} end
  end
end
for _, worker in ipairs(call('ZRANGE', key(pool, 'workers'), 0, -1)) do
  call('DEL', worker_key(pool, worker))
end
for _, number in ipairs(numbers) do
  local job = call('HMGET', job_key(number), 'id', 'owner', 'iff', 'kids', 'wf', 'steps')
  if job[1] then call('HDEL', prefix .. 'job_names', job[1]) end
  if job[2] then call('SREM', held_key(job[2]), number) end
  if job[3] or job[4] or job[5] then forget_links(number, job[5]) end
  if job[6] then call('UNLINK', steps_key(number), events_key(number)) end
  call('UNLINK', job_key(number), doc_key(number), tries_key(number))
end
for _, head in ipairs(call('ZRANGE', key(pool, 'lanes'), 0, -1)) do
  call('UNLINK', lane_key(pool, string.sub(head, NUMBER + 1)))
end
for _, group in ipairs(call('ZRANGE', key(pool, 'rates'), 0, -1)) do call('UNLINK', key(pool, 'rate:' .. group)) end
for _, name in ipairs({
  'pool', 'workers', 'live', 'ended', 'unreaped', 'reaped', 'events', 'instructions', 'beats', 'logs', 'samples', 'sample_bodies',
  'jobs', 'unfinished', 'waiting', 'ready', 'lanes', 'delayed', 'leases', 'done', 'poisoned', 'cancelled', 'unique', 'running', 'rates', 'news',
}) do
  call('UNLINK', key(pool, name))
end
call('ZREM', prefix .. 'pools', pool)
