"""Spawners start, list and stop workers at a provider: as processes of this machine, on SSH hosts, or as RunPod pods."""

from drumbeat.spawn.interface import Instance, Order, Spawner, SpawnerTraits

__all__ = ["Instance", "Order", "Spawner", "SpawnerTraits"]
