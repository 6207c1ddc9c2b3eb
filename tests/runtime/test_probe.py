"""The probe reads this machine, and prefers what limits us."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import psutil
import pytest

from drumbeat.core.clock import ManualClock, SystemClock
from drumbeat.runtime import probe
from drumbeat.runtime.probe import Probe, Reading, find_gpu
from runtime.given import seconds


@pytest.mark.parametrize(
    ("reading", "cpu", "memory"),
    [
        (Reading(host_cpu_percent=10.0, host_memory_percent=20.0), 10.0, 20.0),
        (Reading(host_cpu_percent=10.0, cgroup_cpu_percent=90.0, host_memory_percent=20.0), 90.0, 20.0),
        (Reading(host_memory_percent=20.0, cgroup_memory_percent=0.0), None, 0.0),
        (Reading(), None, None),
    ],
)
def test_the_container_counts_before_the_host(reading: Reading, cpu: float | None, memory: float | None) -> None:
    assert (reading.cpu_percent, reading.memory_percent) == (cpu, memory)


def test_this_machine_can_be_read() -> None:
    probe = Probe(SystemClock())
    worked = sum(n * n for n in range(2_000_000))
    reading = probe.read()

    assert worked
    assert reading.process_cpu_percent is not None
    assert reading.process_cpu_percent > 1
    assert reading.process_memory_percent is not None
    assert 0 < reading.process_memory_percent < 100
    assert reading.host_memory_percent is not None
    assert 0 < reading.host_memory_percent <= 100
    assert reading.host_cpu_percent is None or 0 <= reading.host_cpu_percent <= 100
    assert reading.memory_percent is not None


class HostTimes(NamedTuple):
    user: float
    system: float
    idle: float
    iowait: float
    guest: float


async def test_waiting_for_the_disk_is_not_being_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    times = [HostTimes(10, 10, 70, 5, 4), HostTimes(20, 20, 140, 35, 8)]
    monkeypatch.setattr(psutil, "cpu_times", lambda: times.pop(0))
    clock = ManualClock()
    probe = Probe(clock)
    await clock.advance(seconds(1))
    assert probe.read().host_cpu_percent == pytest.approx(20 / 120 * 100)


async def test_a_host_is_never_busier_than_it_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    times = [HostTimes(10, 10, 70, 5, 0), HostTimes(20, 20, 70 - 1e-6, 5, 0)]
    monkeypatch.setattr(psutil, "cpu_times", lambda: times.pop(0))
    clock = ManualClock()
    probe = Probe(clock)
    await clock.advance(seconds(1))
    assert probe.read().host_cpu_percent == 100.0


def test_cpu_is_over_the_time_since_the_last_reading() -> None:
    clock = ManualClock()
    assert Probe(clock).read().process_cpu_percent is None


async def test_the_container_s_files_are_read(tmp_path: Path) -> None:
    clock = ManualClock()
    (tmp_path / "self").write_text("0::/\n")
    files = {"cgroup.controllers": "", "cpu.max": "100000 100000", "cpu.stat": "usage_usec 0"}
    files |= {"memory.max": str(2**20), "memory.current": str(2**19), "memory.stat": ""}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    probe = Probe(clock, tmp_path, tmp_path / "self")
    (tmp_path / "cpu.stat").write_text("usage_usec 300000")
    await clock.advance(seconds(1))

    reading = probe.read()

    assert (reading.cgroup_cpu_percent, reading.cgroup_memory_percent) == (30.0, 50.0)
    assert (reading.cpu_percent, reading.memory_percent) == (30.0, 50.0)


class NvmlError(Exception):
    """What NVML raises."""


class FakeNvml(ModuleType):
    """Two GPUs, or what a test makes of them."""

    NVMLError = NvmlError

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.used = [10, 30]
        self.fails: set[str] = set()

    def nvmlInit(self) -> None:  # noqa: N802
        self._maybe_fail("init")

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        self._maybe_fail("count")
        return len(self.used)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetName(self, device: int) -> str | bytes:  # noqa: N802
        return b"H200" if device else "A100"

    def nvmlDeviceGetMemoryInfo(self, device: int) -> Any:  # noqa: N802
        return SimpleNamespace(used=self.used[device], total=40)

    def nvmlDeviceGetUtilizationRates(self, device: int) -> Any:  # noqa: N802
        self._maybe_fail("use")
        return SimpleNamespace(gpu=7)

    def _maybe_fail(self, what: str) -> None:
        if what in self.fails:
            raise NvmlError(what)


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.setattr(probe, "GPU_DEVICES", (Path("/dev/null"),))
    return fake


def test_gpus_are_read_through_nvml(nvml: FakeNvml) -> None:
    gpu = Probe(ManualClock()).read().gpu
    assert gpu is not None
    assert gpu["memory_percent"] == 75.0
    assert [(device["name"], device["memory_percent"], device["use_percent"]) for device in gpu["devices"]] == [
        ("A100", 25.0, 7.0),
        ("H200", 75.0, 7.0),
    ]


def test_a_gpu_that_does_not_tell_its_use_still_tells_its_memory(nvml: FakeNvml) -> None:
    nvml.used, nvml.fails = [20], {"use"}
    gpu = Probe(ManualClock()).read().gpu
    assert gpu is not None
    assert gpu["devices"][0]["use_percent"] is None
    assert gpu["memory_used_mb"] / gpu["memory_total_mb"] == gpu["memory_percent"] / 100 == 0.5


@pytest.mark.parametrize("failing", ["init", "count"])
def test_without_a_driver_there_is_no_gpu(nvml: FakeNvml, failing: str) -> None:
    nvml.fails = {failing}
    assert Probe(ManualClock()).read().gpu is None


def test_with_no_devices_there_is_no_gpu(nvml: FakeNvml) -> None:
    nvml.used = []
    assert Probe(ManualClock()).read().gpu is None


def test_without_the_extra_there_is_no_gpu(nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert find_gpu() is None


def test_where_no_driver_has_a_device_nvml_is_not_loaded(nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "GPU_DEVICES", (Path("/dev/no-such-device"),))
    assert find_gpu() is None
