-- The deletion of a pool. Its row ``pool`` is renamed first, so that for scripts there is no such pool any more, and pushes name
-- none of its jobs as a parent. Its jobs are deleted in pages, then its name is free. The sets in PAGED list what is deleted in
-- pages; they are renamed too. A script that still holds a job of the pool may write to other sets, which are deleted at the end.
local PAGED = {'jobs', 'workers', 'lanes', 'rates'}
local WHOLE = {
  'live', 'ended', 'unreaped', 'reaped', 'events', 'instructions', 'beats', 'logs', 'samples', 'sample_bodies', 'unfinished',
  'waiting', 'ready', 'delayed', 'leases', 'done', 'poisoned', 'cancelled', 'unique', 'running', 'news',
}

local function going(name)
  return 'deleted:' .. name
end

local function unlink_whole(pool)
  for _, name in ipairs(WHOLE) do call('UNLINK', key(pool, name)) end
end
