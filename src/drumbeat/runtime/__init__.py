"""Code shared by bench, pool and fleet: the loop of a controller, the life cycle of a worker, and what both need."""
