"""Workloads: operations, values, generated SQL and the standard benchmarks."""
