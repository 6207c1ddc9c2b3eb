"""Recovery: which workers are over though their rows say otherwise, and which instances nobody asked for. Pure.

Every capability recovers first and in the same way, before it decides anything of its own.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from drumbeat.core.pool import Thresholds
from drumbeat.core.worker import LIVE, TERMINAL, Health, Worker, WorkerId, WorkerStatus, judge, silence

_LATE = 1.5  #: heartbeats that are awaited before one is missing
LINGER = timedelta(seconds=30)  #: a worker that says it has left is given this long to end its process
ASKED_AT = "asked_at"  #: of a row's notes: when its instance was asked for once more


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedInstance:
    """A worker's instance, as its provider shows it."""

    worker_id: WorkerId
    running: bool  #: pending counts as running: it will be
    exit_code: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSnapshot:
    """What recovery judges by."""

    now: datetime  #: the store's clock
    looking_since: datetime  #: before this the controller saw nothing; no silence is counted from before
    thresholds: Thresholds
    workers: tuple[Worker, ...]
    instances: tuple[ListedInstance, ...]
    partial: bool = False  #: the provider gave no list: what is not in it may well be there
    unlisted: str | None = None  #: and why it gave none
    unnoted: Mapping[WorkerId, str] = field(default_factory=dict)  #: what the provider calls instances whose rows do not say
    unique_names: bool = True  #: no two instances of a worker at the provider
    provider: str = ""  #: whose instances these are
    settle: timedelta = timedelta()  #: so long may an instance that was asked for be in no list


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkLost:
    """Give up a worker that went silent."""

    worker: Worker
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkFailed:
    """Close the row of a worker whose instance is over."""

    worker: Worker
    exit_code: int | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EndOverdue:
    """End a worker that did not drain in time."""

    worker: Worker
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reap:
    """Make sure an ended worker's instance is gone, and note it."""

    worker_id: WorkerId
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EndStray:
    """End an instance that no live row asks for."""

    worker_id: WorkerId
    reason: str


Closing = MarkLost | MarkFailed | EndOverdue
Recovery = Closing | Reap | EndStray


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """What recovery wants done, and who is left once it is."""

    actions: tuple[Recovery, ...]
    living: tuple[Worker, ...]  #: live, and not about to be closed
    staying: tuple[Worker, ...]  #: those of them that nobody, themselves included, has told to leave
    ended: tuple[Worker, ...] = ()  #: rows that are closed already
    absent: tuple[Worker, ...] = ()  #: live rows whose instances the provider does not show


def recover(sight: PoolSnapshot) -> Recovered:
    """Close rows whose workers are over, see that their instances are gone, end instances without a row."""
    unusual = _unusual(sight)
    ended = tuple([worker for worker in unusual if worker.status in TERMINAL])
    live = sight.workers if not ended else tuple([worker for worker in sight.workers if worker.status in LIVE])
    closing = close(sight, live, [worker for worker in unusual if worker.status in LIVE])
    closed = {action.worker.worker_id for action in closing}
    living = live if not closed else tuple([worker for worker in live if worker.worker_id not in closed])
    shown = {seen.worker_id for seen in sight.instances}
    absent = tuple([worker for worker in live if worker.worker_id not in shown])
    some_are_strays = len(shown) > len(live) - len(absent)
    some_leave = any(not stays(worker) for worker in unusual)
    return Recovered(
        actions=(*closing, *reap(sight, ended), *(end_strays(sight) if some_are_strays else ())),
        living=living,
        staying=tuple([worker for worker in living if stays(worker)]) if some_leave else living,
        ended=ended,
        absent=absent,
    )


def _unusual(sight: PoolSnapshot) -> list[Worker]:
    """All but those who work, were just heard and are to stay: of a large fleet hardly anybody, looked for once."""
    fresh, usual = sight.now - sight.thresholds.stale_after, WorkerStatus.ACTIVE
    return [
        worker
        for worker in sight.workers
        if worker.status is not usual
        or worker.drain_deadline is not None
        or worker.heartbeat_at is None
        or worker.heartbeat_at < fresh
    ]


def stays(worker: Worker) -> bool:
    """Whether nobody, itself included, has told this worker to leave."""
    return worker.drain_deadline is None and worker.status is not WorkerStatus.DRAINING


def close(sight: PoolSnapshot, live: Sequence[Worker], unusual: Sequence[Worker]) -> list[Closing]:
    """Workers whose rows must be closed, each for the first reason that holds; only the unusual are silent or overdue."""
    closing: dict[WorkerId, Closing] = {}
    for action in (*mark_failed(sight, live), *mark_lost(sight, unusual), *end_overdue(sight, unusual)):
        closing.setdefault(action.worker.worker_id, action)
    return list(closing.values())


def mark_failed(sight: PoolSnapshot, live: Sequence[Worker]) -> list[Closing]:
    """Workers whose rows are live and whose instances are over, all of them if a provider started two under one name.

    Where it may have, the one that works may not be shown yet: a worker that is heard is not over.
    """
    over = [seen for seen in sight.instances if not seen.running]
    if not over:
        return []
    running = {seen.worker_id for seen in sight.instances if seen.running}
    ended = {seen.worker_id: seen.exit_code for seen in over if seen.worker_id not in running}
    return [
        MarkFailed(
            worker=worker,
            exit_code=ended[worker.worker_id],
            reason=f"its instance is over: {_how_it_ended(ended[worker.worker_id])}",
        )
        for worker in live
        if worker.worker_id in ended and (sight.unique_names or not _is_heard(worker, sight))
    ]


def _is_heard(worker: Worker, sight: PoolSnapshot) -> bool:
    """Whether a worker that joined has left out no beat of its heart."""
    return worker.heartbeat_at is not None and silence(worker, sight.now) <= sight.thresholds.heartbeat_every * _LATE


def mark_lost(sight: PoolSnapshot, live: Sequence[Worker]) -> list[Closing]:
    """Workers silent for too long, by what was seen while we were looking."""
    return [
        MarkLost(worker=worker, reason=f"silent for {silence(worker, sight.now).total_seconds():.0f} s")
        for worker in live
        if judge(worker, sight.now, sight.thresholds, sight.looking_since) is Health.LOST
    ]


def end_overdue(sight: PoolSnapshot, live: Sequence[Worker]) -> list[Closing]:
    """Workers whose time to drain is over."""
    return [
        EndOverdue(worker=worker, reason=f"did not drain by {worker.drain_deadline:%H:%M:%S}")
        for worker in live
        if worker.drain_deadline is not None and worker.drain_deadline < sight.now
    ]


def reap(sight: PoolSnapshot, ended: Sequence[Worker]) -> list[Reap]:
    """Ended workers whose instances are not known to be gone; not yet those whose instance may turn up later."""
    shown = {seen.worker_id for seen in sight.instances}
    return [
        Reap(worker_id=worker.worker_id, reason=f"it ended as {worker.status}")
        for worker in ended
        if worker.reaped_at is None and (worker.worker_id in shown or not may_turn_up(sight, worker))
    ]


def may_turn_up(sight: PoolSnapshot, worker: Worker) -> bool:
    """Whether an instance that nobody has seen yet may appear: its creation got no answer, and lists may be late."""
    was_seen = bool(worker.provider_ref) or worker.heartbeat_at is not None
    if was_seen or worker.meta.get("spawn_failed"):
        return False
    return sight.now - asked_at(worker, sight.now) < sight.settle


def end_strays(sight: PoolSnapshot) -> list[EndStray]:
    """Instances that no row asks for: the row comes first, so nobody will ever miss them.

    An ended worker's instance is ended by ``reap``; if it is seen again after that (its provider was late), it is a stray.
    """
    asked_for = {worker.worker_id for worker in sight.workers if worker.reaped_at is None or worker.status in LIVE}
    strays = [seen.worker_id for seen in sight.instances if seen.running and seen.worker_id not in asked_for]
    return [EndStray(worker_id=worker_id, reason="it runs without a live row") for worker_id in dict.fromkeys(strays)]


def lingers(sight: PoolSnapshot, worker_id: WorkerId) -> bool:
    """Whether a worker has just left by itself, and its process may be about to end: ending it would cut its last words."""
    left = {WorkerStatus.TERMINATED, WorkerStatus.ERROR}
    return any(seen.worker_id == worker_id and seen.running for seen in sight.instances) and any(
        row.worker_id == worker_id and row.status in left and row.ended_at is not None and sight.now - row.ended_at < LINGER
        for row in sight.workers
        if not row.meta.get("drain_timed_out")
    )


def may_run(sight: PoolSnapshot) -> list[Worker]:
    """Workers whose instance may be running: all but those known to be gone, and those their provider refused to start.

    A worker that drains, and one that ended and was not reaped, may run. Only a whole list of a provider that never has two
    instances of one name shows that an instance is over.
    """
    rows = [row for row in sight.workers if row.reaped_at is None and not row.meta.get("spawn_failed")]
    if sight.partial or not sight.unique_names:
        return rows
    running = {seen.worker_id for seen in sight.instances if seen.running}
    over = {seen.worker_id for seen in sight.instances} - running
    return [row for row in rows if row.worker_id in running or not _is_over(row, over, sight)]


def _is_over(row: Worker, over: Set[WorkerId], sight: PoolSnapshot) -> bool:
    """Whether a worker that is not seen running is surely gone. Nothing is known of another provider's."""
    if sight.provider and row.provider and row.provider != sight.provider:
        return False
    return row.worker_id in over or (row.status in TERMINAL and not may_turn_up(sight, row))


def never_started(sight: PoolSnapshot, staying: Sequence[Worker]) -> list[Worker]:
    """Rows whose instance was never started: a controller died between the two."""
    asked_for = [worker for worker in staying if worker.status is WorkerStatus.SPAWNING]
    if not asked_for:
        return []
    seen = {each.worker_id for each in sight.instances}
    return [worker for worker in asked_for if worker.worker_id not in seen]


def asked_at(row: Worker, now: datetime) -> datetime:
    """When a worker's instance was last asked for."""
    again = row.meta.get(ASKED_AT)
    return datetime.fromisoformat(again) if isinstance(again, str) else row.created_at or now


def next_number(sight: PoolSnapshot) -> int:
    """One above every number a worker or an instance of this pool is named by."""
    names = {*(worker.worker_id for worker in sight.workers), *(seen.worker_id for seen in sight.instances)}
    numbers = [int(number) for name in names if (number := name.removeprefix("worker-")).isdecimal()]
    return max(numbers, default=-1) + 1


def _how_it_ended(exit_code: int | None) -> str:
    if exit_code is None:
        return "nobody knows how"
    return f"killed by signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"
