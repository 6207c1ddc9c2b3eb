"""Hands: start, list and stop workers somewhere."""

from drumbeat.spawn.interface import Instance, Order, Spawner, SpawnerTraits

__all__ = ["Instance", "Order", "Spawner", "SpawnerTraits"]
