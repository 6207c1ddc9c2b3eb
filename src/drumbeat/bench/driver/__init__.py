"""The load driver: opens connections, sends operations, and records the time and outcome of each operation."""
