-- How many leases were ever taken.
return call('SCARD', prefix .. 'leases')
