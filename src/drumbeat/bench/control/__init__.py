"""The orchestrator of benchmark runs: create a run, observe it, decide, act."""
