-- Store the answer only if the key is still held.
local name, status, body, location, kept_for = unpack(ARGV)
local row = key(name, 'answer')
if call('EXISTS', row) == 0 then return end
call('HSET', row, 'status', status, 'body', body, 'expires_at', int(now() + kept_for))
if given(location) then call('HSET', row, 'location', location) end
call('PEXPIRE', row, int(math.ceil(kept_for / 1000)))
