-- One script looks and takes, so of many that ask with one key, one gets it. Redis drops what has expired by itself.
local name, fingerprint, within = unpack(ARGV)
local row, at = key(name, 'answer'), now()
local kept = call('HMGET', row, 'fingerprint', 'expires_at', 'status', 'body', 'location')
if kept[1] and tonumber(kept[2]) > at then return kept end
call('DEL', row)
call('HSET', row, 'fingerprint', fingerprint, 'expires_at', int(at + within))
call('PEXPIRE', row, int(math.ceil(within / 1000)))
return false
