"""Measures CPU and memory use of this process, its container and its host, and the use of GPUs and of the volume."""

import importlib
import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil

from drumbeat.core.clock import Clock
from drumbeat.core.worker import DISK
from drumbeat.runtime.cgroup import MEMBERSHIP, ROOT, CgroupProbe, find_hierarchy
from drumbeat.runtime.disk import DiskProbe

log = logging.getLogger(__name__)

GPU_DEVICES = (Path("/dev/nvidiactl"), Path("/dev/dxg"))  #: one of these files exists if NVML can find a GPU
_MEGABYTE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One measurement of resource use: CPU since the last reading, memory now. A field is None if it could not be measured."""

    process_cpu_percent: float | None = None  #: 100 is one busy core; two busy threads may give 200
    process_memory_percent: float | None = None  #: in percent of the host's memory
    host_cpu_percent: float | None = None
    host_memory_percent: float | None = None
    cgroup_cpu_percent: float | None = None  #: in percent of the container's limit; None if it has no limit
    cgroup_memory_percent: float | None = None
    gpu: Mapping[str, Any] | None = None
    disk: Mapping[str, Any] | None = None  #: total and free space of the worker's volume

    @property
    def cpu_percent(self) -> float | None:
        """Return the container's CPU use if the container has a CPU limit, otherwise the host's CPU use."""
        return self.host_cpu_percent if self.cgroup_cpu_percent is None else self.cgroup_cpu_percent

    @property
    def memory_percent(self) -> float | None:
        return self.host_memory_percent if self.cgroup_memory_percent is None else self.cgroup_memory_percent

    @property
    def devices(self) -> Mapping[str, Any] | None:
        """Return the content of a heartbeat's field ``gpu``: GPU use and, if known, the disk."""
        return self.gpu if self.disk is None else {**(self.gpu or {}), DISK: self.disk}


@dataclass(frozen=True, slots=True)
class _CpuTimes:
    process: float
    host_busy: float
    host_total: float


class Probe:
    """Measures resource use on this machine. CPU use is measured since the last reading; at first, since creation."""

    def __init__(
        self, clock: Clock, cgroup_root: Path = ROOT, cgroup_membership: Path = MEMBERSHIP, disk: DiskProbe | None = None
    ) -> None:
        self._clock = clock
        self._disk = disk
        self._process = psutil.Process()
        self._cgroup = CgroupProbe(find_hierarchy(psutil.virtual_memory().total, cgroup_root, cgroup_membership))
        self._gpu = find_gpu()
        self._read_at = clock.elapsed()
        self._times = self._cpu_times()
        self._cgroup.read(timedelta())

    def read(self) -> Reading:
        """Measure now, and return the reading."""
        now = self._clock.elapsed()
        interval, self._read_at = now - self._read_at, now
        before, self._times = self._times, self._cpu_times()
        cgroup_cpu, cgroup_memory = self._cgroup.read(interval)
        return Reading(
            process_cpu_percent=_percent(self._times.process - before.process, interval.total_seconds()),
            process_memory_percent=self._process.memory_percent(),
            host_cpu_percent=_share(self._times.host_busy - before.host_busy, self._times.host_total - before.host_total),
            host_memory_percent=psutil.virtual_memory().percent,
            cgroup_cpu_percent=cgroup_cpu,
            cgroup_memory_percent=cgroup_memory,
            gpu=self._gpu.read() if self._gpu else None,
            disk=self._disk.read() if self._disk else None,
        )

    def _cpu_times(self) -> _CpuTimes:
        own, host = self._process.cpu_times(), psutil.cpu_times()
        guests = getattr(host, "guest", 0.0) + getattr(host, "guest_nice", 0.0)
        total = sum(host) - guests
        idle = host.idle + getattr(host, "iowait", 0.0)
        return _CpuTimes(process=own.user + own.system, host_busy=total - idle, host_total=total)


def _percent(part: float, whole: float) -> float | None:
    return max(part / whole * 100, 0.0) if whole > 0 else None


def _share(part: float, whole: float) -> float | None:
    """Return ``part`` in percent of ``whole``, at most 100, which rounding errors could otherwise exceed."""
    found = _percent(part, whole)
    return None if found is None else min(found, 100.0)


class GpuProbe:
    """Measures memory and utilisation of each NVIDIA GPU that this process can see."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml

    def read(self) -> Mapping[str, Any] | None:
        """Measure all GPUs; the total ``memory_percent`` is that of the fullest GPU. None if there is no GPU."""
        try:
            devices = [self._device(index) for index in range(self._nvml.nvmlDeviceGetCount())]
        except self._nvml.NVMLError as exc:
            log.debug("failed to measure the GPUs: %s; the heartbeat has no GPU data", exc)
            return None
        if not devices:
            return None
        return {
            "memory_percent": max(device["memory_percent"] for device in devices),
            "memory_used_mb": sum(device["memory_used_bytes"] for device in devices) / _MEGABYTE,
            "memory_total_mb": sum(device["memory_total_bytes"] for device in devices) / _MEGABYTE,
            "devices": devices,
        }

    def _device(self, index: int) -> Mapping[str, Any]:
        device = self._nvml.nvmlDeviceGetHandleByIndex(index)
        memory = self._nvml.nvmlDeviceGetMemoryInfo(device)
        return {
            "index": index,
            "name": self._name(device),
            "memory_used_bytes": memory.used,
            "memory_total_bytes": memory.total,
            "memory_percent": memory.used / memory.total * 100,
            "use_percent": self._use(device),
        }

    def _name(self, device: Any) -> str:
        name = self._nvml.nvmlDeviceGetName(device)
        return name.decode() if isinstance(name, bytes) else str(name)

    def _use(self, device: Any) -> float | None:
        """Return the GPU's utilisation in percent; None if the GPU does not report its utilisation."""
        try:
            return float(self._nvml.nvmlDeviceGetUtilizationRates(device).gpu)
        except self._nvml.NVMLError:
            return None


def find_gpu() -> GpuProbe | None:
    """Return a GPU probe; None if NVML (the extra ``gpu``) is missing or finds no GPU driver."""
    if sys.platform == "linux" and not any(device.exists() for device in GPU_DEVICES):
        return None
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as exc:
        log.debug("GPUs are not measured, because NVML did not start: %s", exc)
        return None
    return GpuProbe(nvml)
