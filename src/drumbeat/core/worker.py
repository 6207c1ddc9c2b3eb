"""A worker: one process or pod, its states, and its health by the age of its last heartbeat."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import IntEnum, StrEnum
from typing import Any, NewType

from drumbeat.core.errors import IllegalMove
from drumbeat.core.pool import PoolId, Thresholds

WorkerId = NewType("WorkerId", str)

_NUMBERED = re.compile(r"worker-([0-9]{1,15})")

TERMINATING = "terminating"  #: the status that a fleet shows for a live worker that is leaving
NOT_STARTED = "not started"  #: the status that is shown for a worker that its engine did not start
SPAWN_FAILED = "spawn_failed"  #: key in a row's ``meta``: its engine refused to start it, and is not asked again
REFUSED = "refused"  #: key in a row's ``meta``: its engine refused to start it (why and when), and will be asked again
UNANSWERED = "unanswered"  #: key in a row's ``meta``: why the last request to start it got no answer
CAPACITY_EXEMPT = "capacity_exempt"  #: key in a row's ``meta``: the worker does not count towards the size of its fleet
TYPES = "types"  #: key in a row's ``meta``: the job types that the worker has handlers for; missing: every type
NOT_LOADED = "not_loaded"  #: key in a row's ``meta``: job types whose handler the worker cannot load, with the cause
KILLING = "killing"  #: key in a row's ``meta``: a kill by hand has closed the row, but perhaps not ended its instance yet
CRASH = "crash"  #: key in a row's ``meta``: whether its jobs may have caused its end; if missing, see has_crashed
DISK = "disk"  #: the key in ``gpu`` under which a worker reports the disk of its volume


class WorkerStatus(StrEnum):
    """The state of a worker. Only the moves along the arrows are legal.

    spawning ─▶ starting ─▶ waiting ─▶ active ─▶ draining ─▶ terminated
        └───────────┴──────────┴─────────┴───────────┴──▶ error │ lost │ terminated
    """

    SPAWNING = "spawning"  #: requested; its process has not joined yet
    STARTING = "starting"  #: its process is up and is getting ready
    WAITING = "waiting"  #: ready; waiting for START
    ACTIVE = "active"  #: working
    DRAINING = "draining"  #: finishing its work, taking nothing new
    TERMINATED = "terminated"  #: left cleanly
    ERROR = "error"  #: failed, as it or its provider reported
    LOST = "lost"  #: went silent; presumed dead


TERMINAL = frozenset({WorkerStatus.TERMINATED, WorkerStatus.ERROR, WorkerStatus.LOST})

MOVES: Mapping[WorkerStatus, frozenset[WorkerStatus]] = {
    WorkerStatus.SPAWNING: TERMINAL | {WorkerStatus.STARTING},
    WorkerStatus.STARTING: TERMINAL | {WorkerStatus.WAITING, WorkerStatus.DRAINING},
    WorkerStatus.WAITING: TERMINAL | {WorkerStatus.ACTIVE, WorkerStatus.DRAINING},
    WorkerStatus.ACTIVE: TERMINAL | {WorkerStatus.DRAINING},
    WorkerStatus.DRAINING: TERMINAL,
    WorkerStatus.TERMINATED: frozenset(),
    WorkerStatus.ERROR: frozenset(),
    WorkerStatus.LOST: frozenset(),
}

LIVE = frozenset(WorkerStatus) - TERMINAL


def check_move(worker: str, before: WorkerStatus, after: WorkerStatus) -> None:
    """Raise IllegalMove if a worker must not change from status ``before`` to ``after``; see the diagram of WorkerStatus."""
    if after not in MOVES[before]:
        legal = ", ".join(sorted(MOVES[before])) or "nothing: it is an end state"
        raise IllegalMove(f"worker {worker} cannot move from {before} to {after}; from {before} it can move to {legal}")


class Health(StrEnum):
    """A worker's health, judged by the age of its last heartbeat. Derived, never stored."""

    HEALTHY = "healthy"
    STALE = "stale"
    LOST = "lost"


class ExitCode(IntEnum):
    """The exit codes of a worker process."""

    CLEAN = 0  #: the worker finished, or was asked to stop
    CONFIGURATION = 1  #: its arguments, run or settings cannot be used
    STORE_LOST = 2  #: the store gave no answer for so long that the worker ended itself
    START_TIMEOUT = 3  #: no START came in time
    FATAL = 4  #: its workload failed and cannot continue
    CONTROLLER_GONE = 5  #: no controller renewed its lease for too long


ENDED_BY_ITSELF = frozenset({ExitCode.CLEAN, ExitCode.STORE_LOST, ExitCode.CONTROLLER_GONE})  #: exits that no job caused


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """The holder of a job: a process, its worker and its pool. The pool is needed, as each pool can have a ``worker-0``."""

    pool_id: PoolId  #: the worker's own pool; the job may be of another
    worker_id: WorkerId
    instance: str = ""  #: the process that joined as this worker; empty for a process that never joined


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A stored worker: one row of ``workers``. The row can exist before the process does."""

    pool_id: PoolId
    worker_id: WorkerId
    slot: int  #: its fixed zero-based index in the pool (``worker_group_id``)
    status: WorkerStatus = WorkerStatus.SPAWNING
    instance: str | None = None  #: the one process that may write for this row
    host: str | None = None
    pid: int | None = None
    provider: str | None = None
    provider_ref: str | None = None
    capabilities: tuple[str, ...] = ()
    phase: str | None = None
    target: int = 0  #: how many connections or jobs it should hold
    target_seq: int = 0  #: number of the event that set the target
    applied_target: int = 0  #: the target that the worker reports as applied
    active: int = 0
    operations: int = 0
    errors: int = 0
    cpu_percent: float | None = None
    memory_percent: float | None = None
    gpu: Mapping[str, Any] | None = None
    heartbeat_at: datetime | None = None  #: None until its first heartbeat
    heartbeat_count: int = 0
    created_at: datetime | None = None
    started_at: datetime | None = None
    ready_at: datetime | None = None
    drain_deadline: datetime | None = None  #: set when it is asked to drain
    ended_at: datetime | None = None
    reaped_at: datetime | None = None  #: when its instance was confirmed to be gone
    exit_code: int | None = None
    error: str | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)

    @property
    def holder(self) -> Holder:
        """The identity under which this worker holds jobs."""
        return Holder(pool_id=self.pool_id, worker_id=self.worker_id, instance=self.instance or "")

    @property
    def engine(self) -> str | None:
        """The engine that runs the worker; if unknown, all engines that could have started it (``a,b``); None if not stored."""
        return self.meta.get("engine") or self.provider

    @property
    def place(self) -> str | None:
        """The name of the host that runs the worker: from its engine, else from the worker itself; None if neither gave one."""
        return self.meta.get("host") or self.host

    @property
    def not_started(self) -> str | None:
        """Why the worker has not joined: its engine refused or did not answer. None if it has joined or no reason is known."""
        if self.started_at is not None or self.heartbeat_at is not None:
            return None
        if self.meta.get(SPAWN_FAILED):
            return self.error or "its engine refused to start it"
        refused = self.meta.get(REFUSED)
        return str(refused["reason"]) if refused else self.meta.get(UNANSWERED)

    @property
    def was_refused(self) -> bool:
        """Whether the engine refused to start the worker; the worker then surely does not run."""
        return bool(self.meta.get(SPAWN_FAILED) or self.meta.get(REFUSED))

    @property
    def shown_status(self) -> str:
        """The status to show: the row's status, or ``not started`` if the engine refused to start it or gave no answer."""
        return self.status.value if self.not_started is None else NOT_STARTED

    @property
    def is_live(self) -> bool:
        return self.status in LIVE

    @property
    def is_terminating(self) -> bool:
        """Whether the worker is live and leaving. Its row can say ``active`` until the worker has read the request to leave."""
        return self.status is WorkerStatus.DRAINING or (self.drain_deadline is not None and self.is_live)

    @property
    def has_crashed(self) -> bool:
        """Whether the jobs that an ended worker had begun may be the cause of its end, so that they are charged a crash.

        False if it left by itself, lost the store or its controller, was killed by hand, or ended while it was leaving.
        """
        if (noted := self.meta.get(CRASH)) is not None:
            return bool(noted)
        return self.status in {WorkerStatus.ERROR, WorkerStatus.LOST} and self.exit_code not in ENDED_BY_ITSELF

    @property
    def fleet_status(self) -> str:
        """The status to show in a fleet: ``terminating`` while the worker is leaving, else ``shown_status``."""
        return TERMINATING if self.is_terminating else self.shown_status

    @property
    def has_gpu_data(self) -> bool:
        """Whether the field ``gpu`` has data about a GPU, not only the disk space of the volume, which is stored there too."""
        return self.gpu is not None and (DISK not in self.gpu or len(self.gpu) > 1)


def name_of(holder: Holder, pool_id: PoolId, rows: Mapping[WorkerId, Worker]) -> WorkerId:
    """Return the name to show for the holder of a job: the plain worker id if the holder is the worker of this pool.

    A worker of another pool, or another process with the same worker id, gets a longer name that tells them apart.
    """
    if holder.pool_id != pool_id:
        return WorkerId(f"{holder.pool_id}/{holder.worker_id}")
    row = rows.get(holder.worker_id)
    if row is None or row.holder == holder:
        return holder.worker_id
    return WorkerId(f"{holder.worker_id} ({holder.instance or 'never joined'})")


def worker_number(name: str) -> int | None:
    """Return the N of a worker name that ends with ``worker-N``; None for any other name."""
    found = _NUMBERED.fullmatch(name[name.rfind("worker-") :]) if "worker-" in name else None
    return int(found[1]) if found else None


def silence(worker: Worker, now: datetime) -> timedelta:
    """Return the time since the worker's last heartbeat; before its first heartbeat, since its row was created."""
    last_contact = worker.heartbeat_at or worker.created_at or now
    return max(now - last_contact, timedelta())


def judge(worker: Worker, now: datetime, thresholds: Thresholds, looking_since: datetime | None = None) -> Health:
    """Judge a worker's health by the time since its last heartbeat. Before a worker joins, its limit is ``start_within``.

    Silence from before ``looking_since`` does not count: the controller was cut off then, and perhaps the worker was too.
    """
    quiet = silence(worker, now)
    if looking_since is not None:
        quiet = min(quiet, max(now - looking_since, timedelta()))
    if worker.status is WorkerStatus.SPAWNING:
        return Health.LOST if quiet > thresholds.start_within else Health.HEALTHY
    if quiet > thresholds.lost_after:
        return Health.LOST
    return Health.STALE if quiet > thresholds.stale_after else Health.HEALTHY


def shown_health(worker: Worker, now: datetime, thresholds: Thresholds) -> Health | None:
    """Return the health to show for a worker; None if it has ended or was not started, as it then sends no heartbeats."""
    return judge(worker, now, thresholds) if worker.is_live and worker.not_started is None else None
