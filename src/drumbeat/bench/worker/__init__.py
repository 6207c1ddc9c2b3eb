"""One bench worker: it drives its share of a run's load and records what it measured."""
