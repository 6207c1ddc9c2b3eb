"""Triggers as values: what wakes which beat."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any

WORK_ADDED = "work_added"  #: the one event that triggers wait for
FIRE = "fire"  #: what a fork server is told before a firing: be the checker of a subprocess trigger


class TriggerType(StrEnum):
    """How a trigger is pulled."""

    CRON = "cron"  #: at the times of a schedule
    WEBHOOK = "webhook"  #: by a signed HTTP request
    SUBPROCESS = "subprocess"  #: by a push, in a process of its own
    IN_LOOP = "in-loop"  #: by a push, as a task of the pusher's own event loop
    SERVERLESS = "serverless"  #: by a cloud's own scheduler or gateway


class BeatKind(StrEnum):
    """Which beat a trigger wakes."""

    CHECKER = "parallelization_checker"
    REAPER = "stale_worker_reaper"
    FLEET = "fleet_beat"  #: ours: look, decide and act once for a fleet


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerMachine:
    """A FlatMachines machine that a pool's workers run."""

    file: str
    machines: Mapping[str, str] = field(default_factory=dict)  #: names its states use → files
    hooks: Mapping[str, str] = field(default_factory=dict)  #: names its states use → module:factory or FILE.py:factory


@dataclass(frozen=True, slots=True, kw_only=True)
class Firing:
    """One beat, asked for."""

    trigger: str
    machine: BeatKind = BeatKind.CHECKER
    pool_id: str | None = None  #: None: every pool of jobs, or every fleet
    max_workers: int | None = None
    lost_after: timedelta | None = None  #: the reaper's threshold, if not each pool's own
    worker: WorkerMachine | None = None  #: what the checker has workers run, if not the pool's own handlers

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "Firing":
        """What ``to_json`` wrote."""
        silent, worker = fields.get("lost_after"), fields.get("worker")
        return cls(
            trigger=fields["trigger"],
            machine=BeatKind(fields["machine"]),
            pool_id=fields["pool_id"],
            max_workers=fields["max_workers"],
            lost_after=None if silent is None else timedelta(seconds=silent),
            worker=None if worker is None else WorkerMachine(**worker),
        )

    def to_json(self) -> dict[str, Any]:
        silent = None if self.lost_after is None else self.lost_after.total_seconds()
        return {
            "trigger": self.trigger,
            "machine": self.machine.value,
            "pool_id": self.pool_id,
            "max_workers": self.max_workers,
            "lost_after": silent,
            "worker": None if self.worker is None else asdict(self.worker),
        }


Run = Callable[[Firing], Awaitable[Mapping[str, Any]]]  #: what runs a beat; answers with each pool's report


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """One entry of triggers.yml."""

    name: str
    type: TriggerType
    machine: BeatKind = BeatKind.CHECKER
    pool_id: str | None = None
    max_workers: int | None = None
    lost_after: timedelta | None = None
    schedule: str | None = None  #: five fields, of a cron trigger and perhaps a serverless one
    timezone: str | None = None  #: None: UTC here, the machine's own in a crontab
    secret_variable: str | None = None  #: where a webhook's secret is, never what it is
    worker: WorkerMachine | None = None  #: what workers run, if not the pool's own handlers
    keep_warm: timedelta | None = None  #: for so long after its last use a fork server is kept for a subprocess trigger

    def firing(self, pool_id: str | None = None) -> Firing:
        """The beat it wakes; of a pool that is named now, unless the trigger names its own."""
        return Firing(
            trigger=self.name,
            machine=self.machine,
            pool_id=self.pool_id or pool_id,
            max_workers=self.max_workers,
            lost_after=self.lost_after,
            worker=self.worker,
        )

    def looks_after(self, pool_id: str) -> bool:
        """Whether it has workers started for a pool by itself, at a push or by a schedule."""
        by_itself = {TriggerType.SUBPROCESS, TriggerType.IN_LOOP, TriggerType.CRON}
        return self.type in by_itself and self.machine is BeatKind.CHECKER and self.pool_id in {None, pool_id}

    def hears(self, pool_id: str) -> bool:
        """Whether work added to a pool pulls it."""
        return self.type in {TriggerType.SUBPROCESS, TriggerType.IN_LOOP} and self.pool_id in {None, pool_id}
