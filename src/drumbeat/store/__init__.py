"""The store: the database with pools, workers, jobs and runs. Open it with ``open_store``."""

from drumbeat.store.interface import Store
from drumbeat.store.open import open_store

__all__ = ["Store", "open_store"]
