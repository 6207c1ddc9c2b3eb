"""Loops shared by bench, pool and fleet: a controller's beat, a worker's life cycle, and what both need."""
