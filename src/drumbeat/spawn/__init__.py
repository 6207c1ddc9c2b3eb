"""Spawners start, list and stop workers on this machine, SSH hosts, Docker, Kubernetes, Slurm, Ray, RunPod or SPCS."""

from drumbeat.spawn.interface import Instance, Order, Spawner, SpawnerTraits

__all__ = ["Instance", "Order", "Spawner", "SpawnerTraits"]
