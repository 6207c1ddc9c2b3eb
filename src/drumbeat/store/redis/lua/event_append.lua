-- needs: fence, tell
-- Events of one call get consecutive numbers, since a script runs without interruption.
local name, epoch, pool = unpack(ARGV, 1, 3)
admit(name, epoch)
expect_pool(pool)
local at, told = now(), {}
for i = 4, #ARGV, 5 do
  told[#told + 1] = tell(pool, at, ARGV[i], ARGV[i + 1], given(ARGV[i + 2]), given(ARGV[i + 3]), ARGV[i + 4])
end
return {int(at), told}
