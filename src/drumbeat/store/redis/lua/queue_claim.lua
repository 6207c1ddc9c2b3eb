-- needs: jobs, lanes, claim
-- The script removes the claimed jobs from their lanes, so no other claim sees them.
local pool, holder, lease, limit, capabilities, types, ahead, alone, without = unpack(ARGV)
expect_pool(pool)
local claiming = {holder = holder, lease = tonumber(lease), limit = tonumber(limit), ahead = ahead == '1', alone = alone == '1'}
claiming.capabilities, claiming.types = cmsgpack.unpack(capabilities), cmsgpack.unpack(types)
claiming.without = cmsgpack.unpack(without)
local at = now()
local taken = claim(pool, claiming, at)
if #taken == claiming.limit then return {as_list(taken)} end
return {as_list(taken), outlook(pool, at)}
