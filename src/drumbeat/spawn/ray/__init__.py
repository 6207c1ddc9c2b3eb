"""A spawner that starts workers as jobs of a Ray cluster."""

from drumbeat.spawn.ray.settings import RayRuntimeEnv as RayRuntimeEnv, RaySettings as RaySettings
from drumbeat.spawn.ray.spawner import RaySpawner as RaySpawner
