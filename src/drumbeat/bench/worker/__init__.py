"""A bench worker: generates its share of a run's load and records what it measures."""
