"""Memory: the single source of truth. The front door is ``open_store``."""

from drumbeat.store.interface import Store
from drumbeat.store.open import open_store

__all__ = ["Store", "open_store"]
