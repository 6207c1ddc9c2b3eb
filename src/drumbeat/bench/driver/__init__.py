"""The hot path: connections issuing operations, timed and recorded."""
