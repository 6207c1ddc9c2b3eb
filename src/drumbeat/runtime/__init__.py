"""Code shared by bench, pool and fleet: a controller's loop, a worker's life cycle, and what both use, such as leases."""
