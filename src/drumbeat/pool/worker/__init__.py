"""One job worker: claims jobs, runs their handlers, renews leases and writes results."""
