-- needs: tell, moves, own, sample
-- Store samples and skip those that are stored already. Refused if the worker has ended.
local pool, worker, instance, most = unpack(ARGV, 1, 4)
own(pool, worker, instance)
local at = now()
for i = 5, #ARGV, 3 do keep_sample(pool, worker, at - ARGV[i + 1], ARGV[i], ARGV[i + 2], tonumber(most)) end
