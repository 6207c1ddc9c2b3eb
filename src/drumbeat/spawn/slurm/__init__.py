"""A spawner that starts each worker as a job of a Slurm cluster."""

from drumbeat.spawn.slurm.settings import SlurmSettings as SlurmSettings
from drumbeat.spawn.slurm.spawner import SlurmSpawner as SlurmSpawner
