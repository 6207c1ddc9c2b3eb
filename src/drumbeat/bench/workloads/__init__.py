"""Workloads: what SQL a benchmark runs, with which values, and the standard benchmarks (pgbench, YCSB, TPC-C)."""
