"""Spawners start, list and stop workers at a provider: this machine, SSH hosts, Docker, Kubernetes, Slurm, Ray or RunPod."""

from drumbeat.spawn.interface import Instance, Order, Spawner, SpawnerTraits

__all__ = ["Instance", "Order", "Spawner", "SpawnerTraits"]
