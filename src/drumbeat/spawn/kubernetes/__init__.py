"""A spawner that starts workers as Jobs of a Kubernetes cluster."""

from drumbeat.spawn.kubernetes.client import PERMISSIONS as PERMISSIONS
from drumbeat.spawn.kubernetes.settings import (
    KubernetesSettings as KubernetesSettings,
    KubernetesVolume as KubernetesVolume,
    Toleration as Toleration,
)
from drumbeat.spawn.kubernetes.spawner import KubernetesSpawner as KubernetesSpawner
