"""The store in Redis: workers, events, leases and jobs, one Lua script per atomic operation."""
