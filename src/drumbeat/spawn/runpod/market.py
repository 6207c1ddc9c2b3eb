"""Caches RunPod's GPU catalogue: prices, stock and GPU memory."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta

from drumbeat.core.clock import Clock
from drumbeat.core.errors import SpawnError
from drumbeat.spawn.runpod.client import RunPodClient
from drumbeat.spawn.runpod.placement import GpuPlace, GpuType, gpu_places
from drumbeat.spawn.runpod.pods import Pod
from drumbeat.spawn.runpod.settings import Cloud, RunPodSettings

log = logging.getLogger(__name__)


class GpuCatalogue:
    """RunPod's GPU catalogue, which is read again when it is outdated."""

    def __init__(self, client: RunPodClient, settings: RunPodSettings, clock: Clock) -> None:
        self._client = client
        self._settings = settings
        self._clock = clock
        self._catalogue: Mapping[Cloud, Sequence[GpuType]] = {}
        self._read_at: timedelta | None = None
        self._memory_read_at: timedelta | None = None
        self.memory_gb: dict[str, int] = {}

    async def places(self) -> Sequence[GpuPlace]:
        """Return where a pod can be requested (GPU type and data centre), cheapest first. Raises SpawnError."""
        if self._is_outdated(self._read_at):
            await self._read()
        return gpu_places(self._catalogue, self._settings)

    async def learn_memory(self, pods: Iterable[Pod]) -> None:
        """Read from the catalogue how much memory the GPUs of these pods have, if that is unknown. Errors are only logged."""
        unknown = any(pod.runtime and pod.gpu and pod.gpu.id not in self.memory_gb for pod in pods)
        if not unknown or not self._is_outdated(self._memory_read_at):
            return
        self._memory_read_at = self._clock.elapsed()
        try:
            await self._read()
        except SpawnError as exc:
            log.warning("failed to read from RunPod how much memory its GPU types have: %s; retrying later", exc)

    def _is_outdated(self, since: timedelta | None) -> bool:
        return since is None or self._clock.elapsed() - since >= self._settings.catalogue_for

    async def _read(self) -> None:
        count = self._settings.gpu_count
        self._catalogue = {cloud: await self._client.gpus(cloud, count) for cloud in self._settings.clouds}
        self.memory_gb |= {gpu.id: gpu.memory for gpus in self._catalogue.values() for gpu in gpus}
        self._read_at = self._clock.elapsed()
