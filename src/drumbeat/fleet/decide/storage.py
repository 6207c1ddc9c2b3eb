"""Which volumes run full, and how large they shall be, by what their workers tell of them (G18). Pure.

The size asked for is made from the size seen, so the same sight asks for the same size however often it is asked: an answer
that was lost, a second controller or figures that are not new buy nothing twice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from drumbeat.core.worker import DISK, Worker, WorkerId
from drumbeat.fleet.model import Action, ExpandVolume, FleetState, FleetView, Warn

RULE = "storage"
_LARGEST = 1e9  #: GB; what is larger is no disk
_NUMBERS = frozenset({int, float})
_NAMES = frozenset({str, type(None)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """A volume as a worker sees it, in GB."""

    name: str  #: the volume's, or where it is mounted if it has none
    volume: str | None  #: what its provider calls it
    worker_id: WorkerId
    total: float
    free: float

    @property
    def percent_used(self) -> float:
        return 100 * (1 - self.free / self.total)

    def __str__(self) -> str:
        return f"{self.name}: {self.free:.0f} of {self.total:.0f} GB are free, {self.percent_used:.0f} % are used"


def watch_storage(view: FleetView, living: Sequence[Worker], state: FleetState) -> tuple[list[Action], FleetState]:
    """What shall be done about volumes that run full, and the state with what was asked for. Nothing until it is time."""
    if not is_due(view):
        return [], state
    found = disks(living)
    if not found and not state.asked_gb:
        return [], state
    low = [disk for disk in found if is_low(view, disk)]
    wanted = {disk.name: size for disk in low if (size := _wanted(view, disk)) is not None}
    actions = [action for disk in low for action in _about(view, disk, wanted.get(disk.name))]
    return actions, replace(state, disks_at=view.now, asked_gb=wanted)


def is_due(view: FleetView) -> bool:
    """Every so many beats, counted in time; never while the pool is paused, since disk is bought."""
    cycles, last = view.policy.storage_check_interval_cycles, view.state.disks_at if view.state else None
    if not cycles or view.is_paused:
        return False
    return last is None or view.now - last >= view.policy.every * (cycles - 0.5)


def disks(living: Sequence[Worker]) -> list[Disk]:
    """Each volume once, however many workers share it."""
    newest: dict[str, tuple[Worker, Mapping[str, Any]]] = {}
    for worker, told in [(each, each.gpu[DISK]) for each in living if each.gpu is not None and DISK in each.gpu]:
        if not _is_figures(told):
            continue
        name = told.get("volume") or f"{worker.host}:{told.get('path')}"
        if name not in newest or _newness(told) > _newness(newest[name][1]):
            newest[name] = worker, told
    return [_disk(name, *newest[name]) for name in sorted(newest)]


def _is_figures(told: Any) -> bool:
    """Whoever writes a worker of its own may say anything."""
    if not isinstance(told, dict):
        return False
    total, free, volume = told.get("total_gb"), told.get("free_gb"), told.get("volume")
    return type(total) in _NUMBERS and type(free) in _NUMBERS and 0 < total < _LARGEST and type(volume) in _NAMES  # type: ignore[operator]


def _newness(told: Mapping[str, Any]) -> tuple[float, float]:
    """A volume only grows, so of several sights the largest is the newest; of two alike the fuller one counts."""
    return told["total_gb"], -told["free_gb"]


def _disk(name: str, worker: Worker, told: Mapping[str, Any]) -> Disk:
    volume = told.get("volume") or None
    return Disk(name=name, volume=volume, worker_id=worker.worker_id, total=told["total_gb"], free=told["free_gb"])


def is_low(view: FleetView, disk: Disk) -> bool:
    return disk.free < view.policy.storage_min_free_gb or disk.percent_used >= view.policy.storage_max_percent_used


def _wanted(view: FleetView, disk: Disk) -> int | None:
    """The size it shall have; None if it cannot grow, or not any more."""
    seen, policy = ceil(disk.total), view.policy
    size = min(seen + policy.storage_expansion_increment_gb, policy.storage_max_gb)
    can = view.provider.expands_volumes and disk.volume is not None
    return size if can and size > seen else None


def _about(view: FleetView, disk: Disk, size: int | None) -> list[Action]:
    if size is None or disk.volume is None:
        return [_warning(disk, _why_not(view, disk))]
    asked = ExpandVolume(
        worker_id=disk.worker_id, volume=disk.volume, to_gb=size, seen_gb=disk.total, reason=f"{disk}; to {size} GB"
    )
    before = view.state.asked_gb.get(disk.name) if view.state else None
    return [asked, _warning(disk, f"{size} GB were asked for before, and it is no larger")] if before == size else [asked]


def _why_not(view: FleetView, disk: Disk) -> str:
    if not view.provider.expands_volumes or disk.volume is None:
        return "its provider cannot expand it"
    if not view.policy.storage_expansion_increment_gb:
        return "the policy adds none"
    return f"the policy allows {view.policy.storage_max_gb} GB at most"


def _warning(disk: Disk, why: str) -> Warn:
    return Warn(worker_id=disk.worker_id, rule=RULE, reason=f"{disk}; {why}")
