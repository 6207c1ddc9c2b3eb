"""Loops, written once for every capability: a controller's beat, a worker's life, and what both need."""
