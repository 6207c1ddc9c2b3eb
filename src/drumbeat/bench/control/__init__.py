"""The orchestrator of benchmark runs: creates a run, then repeatedly reads its state, decides what to do, and does it."""
