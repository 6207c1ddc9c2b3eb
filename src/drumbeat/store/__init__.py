"""The store: where pools, workers, jobs and runs are kept. Open one with ``open_store``."""

from drumbeat.store.interface import Store
from drumbeat.store.open import open_store

__all__ = ["Store", "open_store"]
