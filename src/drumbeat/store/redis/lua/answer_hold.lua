-- Check and take in one script, so of several requests with the same key only one gets it. Redis drops expired keys itself.
local name, fingerprint, within = unpack(ARGV)
local row, at = key(name, 'answer'), now()
local kept = call('HMGET', row, 'fingerprint', 'expires_at', 'status', 'body', 'location')
if kept[1] and tonumber(kept[2]) > at then return kept end
call('DEL', row)
call('HSET', row, 'fingerprint', fingerprint, 'expires_at', int(at + within))
call('PEXPIRE', row, int(math.ceil(within / 1000)))
return false
