"""Merges, judges, compares and reports the results of benchmark runs."""
