"""A spawner that starts workers as containers of a Docker daemon."""

from drumbeat.spawn.docker.settings import DockerSettings as DockerSettings, PullPolicy as PullPolicy
from drumbeat.spawn.docker.spawner import DockerSpawner as DockerSpawner
