"""Find volumes that are nearly full, by the disk figures that workers report, and compute their new sizes. Pure.

The new size is computed from the reported size, so the same figures always lead to the same request: a lost answer, a second
controller or outdated figures do not buy space twice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from drumbeat.core.worker import DISK, Worker, WorkerId
from drumbeat.fleet.model import Action, ExpandVolume, FleetState, FleetView, Warn

RULE = "storage"
_MAX_GB = 1e9  #: a larger figure cannot be a disk size and is ignored
_NUMBERS = frozenset({int, float})
_NAMES = frozenset({str, type(None)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """A volume as a worker reports it, in GB."""

    name: str  #: the volume's name, or where it is mounted if it has none
    volume: str | None  #: the provider's id of the volume
    worker_id: WorkerId
    total: float
    free: float

    @property
    def percent_used(self) -> float:
        return 100 * (1 - self.free / self.total)

    def __str__(self) -> str:
        return f"{self.name}: {self.free:.0f} of {self.total:.0f} GB free, {self.percent_used:.0f} % used"


def watch_storage(view: FleetView, living: Sequence[Worker], state: FleetState) -> tuple[list[Action], FleetState]:
    """If a check is due, return actions that expand or warn about nearly full volumes, and the state with the new sizes."""
    if not is_due(view):
        return [], state
    found = disks(living)
    if not found and not state.asked_gb:
        return [], state
    low = [disk for disk in found if is_low(view, disk)]
    sizes = {disk.name: size for disk in low if (size := _new_size(view, disk)) is not None}
    actions = [action for disk in low for action in _actions_for(view, disk, sizes.get(disk.name))]
    return actions, replace(state, disks_at=view.now, asked_gb=sizes)


def is_due(view: FleetView) -> bool:
    """Whether this beat checks the disks: every ``storage_check_interval_cycles`` beats, never while the pool is paused."""
    cycles, last = view.policy.storage_check_interval_cycles, view.state.disks_at if view.state else None
    if not cycles or view.is_paused:
        return False
    return last is None or view.now - last >= view.policy.every * (cycles - 0.5)


def disks(living: Sequence[Worker]) -> list[Disk]:
    """Return the volumes that workers report, each once even if several workers share it."""
    newest: dict[str, tuple[Worker, Mapping[str, Any]]] = {}
    for worker, figures in [(each, each.gpu[DISK]) for each in living if each.gpu is not None and DISK in each.gpu]:
        if not _is_valid(figures):
            continue
        name = figures.get("volume") or f"{worker.host}:{figures.get('path')}"
        if name not in newest or _freshness(figures) > _freshness(newest[name][1]):
            newest[name] = worker, figures
    return [_disk(name, *newest[name]) for name in sorted(newest)]


def _is_valid(figures: Any) -> bool:
    """Whether figures are complete and plausible: workers written by users could report anything."""
    if not isinstance(figures, dict):
        return False
    total, free, volume = figures.get("total_gb"), figures.get("free_gb"), figures.get("volume")
    return type(total) in _NUMBERS and type(free) in _NUMBERS and 0 < total < _MAX_GB and type(volume) in _NAMES  # type: ignore[operator]


def _freshness(figures: Mapping[str, Any]) -> tuple[float, float]:
    """Sort key that puts the newest report of a volume last: the largest size, since volumes only grow, then the fullest."""
    return figures["total_gb"], -figures["free_gb"]


def _disk(name: str, worker: Worker, figures: Mapping[str, Any]) -> Disk:
    volume = figures.get("volume") or None
    return Disk(name=name, volume=volume, worker_id=worker.worker_id, total=figures["total_gb"], free=figures["free_gb"])


def is_low(view: FleetView, disk: Disk) -> bool:
    return disk.free < view.policy.storage_min_free_gb or disk.percent_used >= view.policy.storage_max_percent_used


def _new_size(view: FleetView, disk: Disk) -> int | None:
    """Return the size in GB to ask for; None if the volume cannot be expanded or has reached its maximum."""
    current, policy = ceil(disk.total), view.policy
    size = min(current + policy.storage_expansion_increment_gb, policy.storage_max_gb)
    can_grow = view.provider.expands_volumes and disk.volume is not None
    return size if can_grow and size > current else None


def _actions_for(view: FleetView, disk: Disk, size: int | None) -> list[Action]:
    if size is None or disk.volume is None:
        return [_warning(disk, _why_not(view, disk))]
    expand = ExpandVolume(
        worker_id=disk.worker_id, volume=disk.volume, to_gb=size, seen_gb=disk.total, reason=f"{disk}; expanding to {size} GB"
    )
    before = view.state.asked_gb.get(disk.name) if view.state else None
    return [expand, _warning(disk, f"an earlier request for {size} GB had no effect")] if before == size else [expand]


def _why_not(view: FleetView, disk: Disk) -> str:
    if not view.provider.expands_volumes or disk.volume is None:
        return "the provider cannot expand this volume"
    if not view.policy.storage_expansion_increment_gb:
        return "expansion is off (storage_expansion_increment_gb is 0)"
    return f"expansion is limited to {view.policy.storage_max_gb} GB (storage_max_gb)"


def _warning(disk: Disk, why: str) -> Warn:
    return Warn(worker_id=disk.worker_id, rule=RULE, reason=f"{disk}; {why}")
