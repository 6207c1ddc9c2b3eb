"""CPU and memory use of this process's container in percent of its limits, from the files of cgroup v1 or v2."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Protocol

ROOT = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupLevel:
    """The limits and use of one control group: the group of this process, or a group above it."""

    path: Path
    cores: float | None = None  #: CPU limit in cores
    cpu_used: timedelta | None = None  #: CPU time since the group was created
    memory_percent: float | None = None  #: memory use in percent of the limit, without reclaimable page cache
    memory_limit: int | None = None  #: memory limit in bytes


class Hierarchy(Protocol):
    """The control groups of this process, in the file layout of one cgroup version."""

    def levels(self) -> Iterator[CgroupLevel]:
        """Yield the control group of this process, then all groups above it."""
        ...


class CgroupProbe:
    """Reads CPU and memory use in percent of the limit that is closest to being reached; None if there is no limit.

    A limit applies to all groups below it, so each group's use is compared with its own limit, and the highest percent counts.
    """

    def __init__(self, hierarchy: Hierarchy | None) -> None:
        self._hierarchy = hierarchy
        self._used: Mapping[Path, timedelta] = {}

    def read(self, interval: timedelta) -> tuple[float | None, float | None]:
        """Return CPU percent since the last call (``interval`` ago) and memory percent now."""
        levels = list(self._hierarchy.levels()) if self._hierarchy else []
        cpu = [percent for level in levels if (percent := self._cpu_percent(level, interval)) is not None]
        memory = [level.memory_percent for level in levels if level.memory_percent is not None]
        self._used = {level.path: level.cpu_used for level in levels if level.cpu_used is not None}
        return max(cpu, default=None), max(memory, default=None)

    def _cpu_percent(self, level: CgroupLevel, interval: timedelta) -> float | None:
        before = self._used.get(level.path)
        if not interval or not level.cores or level.cpu_used is None or before is None:
            return None
        return max((level.cpu_used - before) / interval / level.cores * 100, 0.0)


def find_hierarchy(host_memory: int, root: Path = ROOT, membership: Path = MEMBERSHIP) -> Hierarchy | None:
    """Return the control groups of this process; None on a system without them."""
    groups = _memberships(membership)
    if (root / "cgroup.controllers").exists():
        return CgroupV2(root=root, group=groups.get("", "/"), host_memory=host_memory)
    if groups and root.is_dir():
        return CgroupV1(root=root, groups=groups, host_memory=host_memory)
    return None


def _memberships(path: Path) -> Mapping[str, str]:
    """Map each controller (cpu, memory, …) to the path of this process's control group. The key "" stands for cgroup v2."""
    groups: dict[str, str] = {}
    for line in (_text(path) or "").splitlines():
        _, controllers, group = line.split(":", 2)
        groups.update(dict.fromkeys(controllers.split(","), group))
    return groups


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupV2:
    """cgroup v2: one tree of groups for CPU and memory."""

    root: Path
    group: str
    host_memory: int

    def levels(self) -> Iterator[CgroupLevel]:
        for path in _upwards(self.root, self.group):
            used = _number(_field(path / "cpu.stat", "usage_usec"))
            yield CgroupLevel(
                path=path,
                cores=_cores(*(_text(path / "cpu.max") or "max").split()),
                cpu_used=None if used is None else timedelta(microseconds=used),
                memory_percent=self._memory_percent(path),
                memory_limit=_number(_text(path / "memory.max")),
            )

    def _memory_percent(self, path: Path) -> float | None:
        used, limit = _number(_text(path / "memory.current")), _number(_text(path / "memory.max"))
        return _share(used, _number(_field(path / "memory.stat", "inactive_file")), limit, self.host_memory)


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupV1:
    """cgroup v1: a separate tree of groups for each controller (cpu, memory, …)."""

    root: Path
    host_memory: int
    groups: Mapping[str, str] = field(default_factory=dict)

    def levels(self) -> Iterator[CgroupLevel]:
        tree = self._tree("cpu")
        for path in _upwards(tree, self.groups.get("cpu", "/")):
            used = _number(_text(self._tree("cpuacct") / path.relative_to(tree) / "cpuacct.usage"))
            yield CgroupLevel(
                path=path,
                cores=_cores(_text(path / "cpu.cfs_quota_us") or "-1", _text(path / "cpu.cfs_period_us") or "100000"),
                cpu_used=None if used is None else timedelta(microseconds=used / 1000),
            )
        for path in _upwards(self._tree("memory"), self.groups.get("memory", "/")):
            limit = _number(_text(path / "memory.limit_in_bytes"))
            yield CgroupLevel(path=path, memory_percent=self._memory_percent(path), memory_limit=limit)

    def _tree(self, controller: str) -> Path:
        """Return the folder where a controller (cpu, memory, …) is mounted, alone or with others (such as ``cpu,cpuacct``)."""
        shared = (path for path in self.root.iterdir() if controller in path.name.split(","))
        return next(shared, self.root / controller)

    def _memory_percent(self, path: Path) -> float | None:
        used, limit = _number(_text(path / "memory.usage_in_bytes")), _number(_text(path / "memory.limit_in_bytes"))
        return _share(used, _number(_field(path / "memory.stat", "total_inactive_file")), limit, self.host_memory)


def _upwards(tree: Path, group: str) -> Iterator[Path]:
    """Yield the folder of the control group, then of each group above it; only ``tree`` itself if the group has no folder
    there, which happens in containers."""
    path = tree / group.lstrip("/")
    if not path.is_dir():
        path = tree
    while path != tree:
        yield path
        path = path.parent
    yield tree


def _cores(quota: str, period: str = "100000") -> float | None:
    allowed, per = _number(quota), _number(period)
    return allowed / per if allowed is not None and per and allowed > 0 else None


def _share(used: int | None, droppable: int | None, limit: int | None, host_memory: int) -> float | None:
    """Return memory use, without the ``droppable`` file cache, in percent of ``limit``; None if the use is unknown, if there is
    no limit, or if the limit is above the host's memory, so that it cannot be reached."""
    if used is None or not limit or limit > host_memory:
        return None
    return max(used - (droppable or 0), 0) / limit * 100


def _text(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None


def _field(path: Path, name: str) -> str | None:
    """Return the value of ``name`` in a file with one name and value per line; None if the file or the name is missing."""
    pairs = (line.split() for line in (_text(path) or "").splitlines())
    return next((pair[1] for pair in pairs if len(pair) == 2 and pair[0] == name), None)


def _number(text: str | None) -> int | None:
    """Parse a number; None for ``max`` (no limit) or a missing value."""
    try:
        return int(text or "")
    except ValueError:
        return None
