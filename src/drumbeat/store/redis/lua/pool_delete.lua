-- needs: deletion
-- Check whether a pool may be deleted, and mark it as deleted if ``links`` is given: see ``deletion``. In one script, so no worker
-- joins, and no job is pushed, between the checks and the mark. Leases stay: an epoch is never reused.
-- Returns a word: ``unfinished`` if there are unfinished jobs and these are not to be deleted, ``linked`` if a job of another pool
-- has been linked to one of this pool since ``links`` was returned, otherwise the present ``links``; nothing if there is no pool.
local pool, unfinished, links = ARGV[1], ARGV[2] == '1', given(ARGV[3])
local row = key(pool, 'pool')
if call('EXISTS', row) == 0 then return nil end
local live = call('ZRANGE', key(pool, 'live'), 0, 4)
if #live > 0 then
  local many = call('ZCARD', key(pool, 'live'))
  refuse('Refused', 'pool ' .. pool .. ' has ' .. many .. ' live workers (' .. table.concat(live, ', ') .. '); drain them first')
end
if not unfinished and call('ZCARD', key(pool, 'unfinished')) > 0 then return 'unfinished' end
local linked = call('HGET', row, 'links') or '0'
if not links then return linked end
if links ~= linked then return 'linked' end
for _, name in ipairs(PAGED) do
  if call('EXISTS', key(pool, name)) == 1 then call('RENAME', key(pool, name), key(pool, going(name))) end
end
unlink_whole(pool)
call('RENAME', row, key(pool, 'deleted'))
call('ZREM', prefix .. 'pools', pool)
call('SADD', prefix .. 'deleted_pools', pool)
return linked
