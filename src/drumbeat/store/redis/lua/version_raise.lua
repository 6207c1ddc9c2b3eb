-- A second caller finds the version raised already and applies nothing.
local before, latest, applied = tonumber(call('GET', prefix .. 'version') or '0'), tonumber(ARGV[1]), {}
for version = before + 1, latest do applied[#applied + 1] = version end
if latest > before then call('SET', prefix .. 'version', latest) end
return applied
