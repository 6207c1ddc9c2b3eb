"""What the fleet sees and what it may do: a frozen view in, frozen actions out."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from drumbeat.core.errors import InvalidSettings
from drumbeat.core.pool import PoolId, Thresholds
from drumbeat.core.recovery import EndOverdue, EndStray, MarkFailed, MarkLost, Reap, Recovery, Seen, Sight
from drumbeat.core.worker import Worker, WorkerId

__all__ = [
    "Action",
    "AskToDrain",
    "EndOverdue",
    "EndStray",
    "FleetPolicy",
    "FleetView",
    "MarkFailed",
    "MarkLost",
    "Reap",
    "Seen",
    "SetTarget",
    "Spawn",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPolicy:
    """How many workers a pool shall have, and what each shall hold."""

    workers: int = 1
    target: int = 1  #: connections, or whatever its workload counts, per worker
    ramp: timedelta = timedelta()

    def __post_init__(self) -> None:
        for name in ("workers", "target"):
            if getattr(self, name) < 0:
                raise InvalidSettings(f"expected {name} to be 0 or more, got {getattr(self, name)}")

    def to_json(self) -> dict[str, Any]:
        return {"workers": self.workers, "target": self.target, "ramp_seconds": self.ramp.total_seconds()}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "FleetPolicy":
        """The policy a pool's row holds. Raises InvalidSettings."""
        try:
            return cls(
                workers=int(fields.get("workers", 1)),
                target=int(fields.get("target", 1)),
                ramp=timedelta(seconds=float(fields.get("ramp_seconds", 0))),
            )
        except (TypeError, ValueError, OverflowError) as exc:
            raise InvalidSettings(
                f"expected numbers as a fleet's workers, target and ramp_seconds, got {dict(fields)}"
            ) from exc


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetView:
    """One consistent look at a pool. The time is in it, by the store's clock."""

    pool_id: PoolId
    now: datetime
    looking_since: datetime  #: before this the controller saw nothing; no silence is counted from before
    paused_until: datetime | None
    thresholds: Thresholds
    policy: FleetPolicy
    workers: tuple[Worker, ...]
    instances: tuple[Seen, ...]

    @property
    def sight(self) -> Sight:
        return Sight(
            now=self.now,
            looking_since=self.looking_since,
            thresholds=self.thresholds,
            workers=self.workers,
            instances=self.instances,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Spawn:
    """Start a worker. Named here, so that asking twice is asking once."""

    worker_id: WorkerId
    slot: int
    group_count: int
    reason: str
    is_new: bool = True  #: False: its row is there, its instance is not


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTarget:
    """Tell a worker what to hold."""

    worker_id: WorkerId
    target: int
    ramp: timedelta
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AskToDrain:
    """Ask a worker to finish and leave."""

    worker_id: WorkerId
    within: timedelta
    reason: str


Action = Recovery | Spawn | SetTarget | AskToDrain
