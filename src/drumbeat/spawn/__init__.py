"""Spawners: start, list and stop workers at a provider."""

from drumbeat.spawn.interface import Instance, Order, Spawner, SpawnerTraits

__all__ = ["Instance", "Order", "Spawner", "SpawnerTraits"]
