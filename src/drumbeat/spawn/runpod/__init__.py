"""A spawner that starts workers as RunPod pods, through RunPod's REST API v2."""

from drumbeat.spawn.runpod.settings import API_KEY_VARIABLE as API_KEY_VARIABLE, RunPodSettings as RunPodSettings
from drumbeat.spawn.runpod.spawner import RunPodSpawner as RunPodSpawner
