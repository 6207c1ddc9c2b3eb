-- The version of the keys' layout; 0 where there is none of ours.
return tonumber(call('GET', prefix .. 'version') or '0')
