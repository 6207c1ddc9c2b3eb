"""Values of triggers: what fires a trigger, and which beat it runs."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any

WORK_ADDED = "work_added"  #: jobs were pushed; the only event that a trigger can wait for
FIRE = "fire"  #: tells a fork server to run the checker of a subprocess trigger


class TriggerType(StrEnum):
    """What fires a trigger."""

    CRON = "cron"  #: a schedule
    WEBHOOK = "webhook"  #: a signed HTTP request
    SUBPROCESS = "subprocess"  #: a push; the beat runs in a separate process
    IN_LOOP = "in-loop"  #: a push; the beat runs as a task in the pusher's event loop
    SERVERLESS = "serverless"  #: the scheduler or gateway of a cloud


class BeatKind(StrEnum):
    """Which beat a trigger runs: start missing workers, clean up after lost workers, or scale a fleet."""

    CHECKER = "parallelization_checker"
    REAPER = "stale_worker_reaper"
    FLEET = "fleet_beat"  #: one beat of a fleet's autoscaler: observe, decide, act


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerMachine:
    """A FlatMachines state machine that a pool's workers run."""

    file: str
    machines: Mapping[str, str] = field(default_factory=dict)  #: names of other machines in its states → files
    hooks: Mapping[str, str] = field(default_factory=dict)  #: hook names in its states → module:factory or FILE.py:factory


@dataclass(frozen=True, slots=True, kw_only=True)
class Firing:
    """A request to run a beat, made when a trigger fires."""

    trigger: str
    machine: BeatKind = BeatKind.CHECKER
    pool_id: str | None = None  #: None: every pool of jobs, or every fleet
    max_workers: int | None = None
    lost_after: timedelta | None = None  #: silence after which the reaper closes a worker; None: each pool's setting
    worker: WorkerMachine | None = None  #: the machine that new workers run; None: the pool's handlers

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "Firing":
        """Read a request that ``to_json`` wrote."""
        lost_after, worker = fields.get("lost_after"), fields.get("worker")
        return cls(
            trigger=fields["trigger"],
            machine=BeatKind(fields["machine"]),
            pool_id=fields["pool_id"],
            max_workers=fields["max_workers"],
            lost_after=None if lost_after is None else timedelta(seconds=lost_after),
            worker=None if worker is None else WorkerMachine(**worker),
        )

    def to_json(self) -> dict[str, Any]:
        lost_after = None if self.lost_after is None else self.lost_after.total_seconds()
        return {
            "trigger": self.trigger,
            "machine": self.machine.value,
            "pool_id": self.pool_id,
            "max_workers": self.max_workers,
            "lost_after": lost_after,
            "worker": None if self.worker is None else asdict(self.worker),
        }


def unused_input(machine: BeatKind, max_workers: int | None, stale_threshold_seconds: float | None) -> str | None:
    """Return why a beat would ignore one of its arguments, and what to do; None if it uses all that are given."""
    if max_workers is not None and machine is BeatKind.REAPER:
        return f"max_workers: not used by {machine}, which starts no workers; remove it"
    if stale_threshold_seconds is None or machine is BeatKind.REAPER:
        return None
    if machine is BeatKind.FLEET:
        instead = "a fleet's policy says when a worker is lost; set heartbeat_timeout in the policy"
    else:
        instead = f"a pool's heartbeat says when a worker is lost; set that, or use {BeatKind.REAPER}"
    return f"stale_threshold_seconds: not used by {machine}, since {instead}"


RunBeats = Callable[[Firing], Awaitable[Mapping[str, Any]]]  #: runs the requested beats; returns a report for each pool


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """One entry of triggers.yml: what fires the trigger, and which beat it runs."""

    name: str
    type: TriggerType
    machine: BeatKind = BeatKind.CHECKER
    pool_id: str | None = None
    max_workers: int | None = None
    lost_after: timedelta | None = None
    schedule: str | None = None  #: a cron expression; required for cron, optional for serverless
    timezone: str | None = None  #: of the schedule; None: UTC, but in a crontab the machine's time zone
    secret_variable: str | None = None  #: the environment variable that holds a webhook's secret
    worker: WorkerMachine | None = None  #: the machine that new workers run; None: the pool's handlers
    keep_warm: timedelta | None = None  #: how long a subprocess trigger keeps its fork server after the last use

    def firing(self, pool_id: str | None = None) -> Firing:
        """Return the request for this trigger's beat. ``pool_id`` is used only if the trigger names no pool."""
        return Firing(
            trigger=self.name,
            machine=self.machine,
            pool_id=self.pool_id or pool_id,
            max_workers=self.max_workers,
            lost_after=self.lost_after,
            worker=self.worker,
        )

    def starts_workers_for(self, pool_id: str) -> bool:
        """Whether a push or a schedule makes this trigger start workers for a pool."""
        automatic = {TriggerType.SUBPROCESS, TriggerType.IN_LOOP, TriggerType.CRON}
        return self.type in automatic and self.machine is BeatKind.CHECKER and self.pool_id in {None, pool_id}

    def fires_on_push_to(self, pool_id: str) -> bool:
        """Whether a push to a pool fires this trigger. For the beat of a fleet, the pool must also be one."""
        return self.type in {TriggerType.SUBPROCESS, TriggerType.IN_LOOP} and self.pool_id in {None, pool_id}
