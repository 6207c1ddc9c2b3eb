"""A spawner that starts workers as job services of Snowflake (Snowpark Container Services, SPCS)."""

from drumbeat.spawn.spcs.settings import SpcsSettings as SpcsSettings
from drumbeat.spawn.spcs.spawner import SpcsSpawner as SpcsSpawner
