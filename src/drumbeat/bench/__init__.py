"""Benchmarks a database: how much load it can take, and how it behaves under that load."""
