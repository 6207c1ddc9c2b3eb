-- needs: tell, moves, own
-- ``allowed`` lists the statuses from which a worker may move to this one.
local pool, worker, instance, to, allowed, reason = unpack(ARGV)
local found = standing(pool, worker)
if found[1] == to and found[2] == instance then return call('HGETALL', worker_key(pool, worker)) end
local status = own(pool, worker, instance)
if not string.find(allowed, ',' .. status .. ',', 1, true) then refuse('IllegalMove', status) end
return move(pool, worker, status, to, reason, {unpack(ARGV, 7, 10)})
