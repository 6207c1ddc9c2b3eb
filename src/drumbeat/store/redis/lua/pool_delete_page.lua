-- needs: tell, moves, jobs, lanes, verdicts, flows, deletion
-- Delete one page of the rows of a pool that is marked as deleted. Returns whether there may be more; after the last page, the
-- pool's name is free.
local pool, page, forget = ARGV[1], tonumber(ARGV[2]), {}
if call('EXISTS', key(pool, 'deleted')) == 0 then return 0 end

function forget.jobs(number)
  local job = call('HMGET', job_key(number), 'id', 'owner', 'iff', 'kids', 'wf', 'steps')
  if job[1] and call('HGET', prefix .. 'job_names', job[1]) == number then call('HDEL', prefix .. 'job_names', job[1]) end
  if job[2] then call('SREM', held_key(job[2]), number) end
  if job[3] or job[4] or job[5] then forget_links(number, job[5]) end
  if job[6] then call('UNLINK', steps_key(number), events_key(number)) end
  call('UNLINK', job_key(number), doc_key(number), tries_key(number))
end

function forget.workers(worker)
  call('DEL', worker_key(pool, worker))
end

function forget.lanes(head)
  call('UNLINK', lane_key(pool, string.sub(head, NUMBER + 1)))
end

function forget.rates(group)
  call('UNLINK', key(pool, 'rate:' .. group))
end

for _, name in ipairs(PAGED) do
  for _, listing in ipairs({key(pool, going(name)), key(pool, name)}) do
    local found = call('ZRANGE', listing, 0, page - 1)
    for _, each in ipairs(found) do forget[name](each) end
    if #found > 0 then
      call('ZREM', listing, unpack(found))
      return 1
    end
  end
end
unlink_whole(pool)
call('UNLINK', key(pool, 'deleted'))
call('SREM', prefix .. 'deleted_pools', pool)
return 0
