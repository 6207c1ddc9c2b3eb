-- The version of the key layout; 0 if the store has no keys of Drumbeat.
return tonumber(call('GET', prefix .. 'version') or '0')
