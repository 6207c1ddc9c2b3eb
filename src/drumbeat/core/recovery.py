"""Recovery: finds dead workers whose row still has a live status, and instances without a row. Pure functions: no I/O.

Bench, pool and fleet all recover in the same way, before they decide anything else.
"""

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from drumbeat.core.engine import covers
from drumbeat.core.pool import Thresholds
from drumbeat.core.refusal import refusal_of
from drumbeat.core.worker import LIVE, TERMINAL, ExitCode, Health, Worker, WorkerId, WorkerStatus, judge, silence

_MISSED_AFTER = 1.5  #: a heartbeat is missed after this many heartbeat intervals
LINGER = timedelta(seconds=30)  #: how long the process of a worker that has left may take to end
ASKED_AT = "asked_at"  #: key in a row's ``meta``: when its instance was requested again


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedInstance:
    """An instance (process, pod or machine) of a worker, as its provider lists it."""

    worker_id: WorkerId
    running: bool  #: true also for a pending instance
    exit_code: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSnapshot:
    """The state of a pool at one moment, from which recovery decides."""

    now: datetime  #: the store's clock
    looking_since: datetime  #: since when a controller observes the pool; earlier silence of workers does not count
    thresholds: Thresholds
    workers: tuple[Worker, ...]
    instances: tuple[ListedInstance, ...]
    partial: bool = False  #: the provider gave no list; ``instances`` may be incomplete
    unlisted: str | None = None  #: why the provider gave no list
    unnoted: Mapping[WorkerId, str] = field(
        default_factory=dict
    )  #: instance ids that the provider lists, but that the workers' rows do not have yet
    unique_names: bool = True  #: the provider never has two instances of one worker
    provider: str = ""  #: the provider of the instances
    settle: timedelta = timedelta()  #: how long a requested instance may be missing from the provider's list
    spared: Collection[WorkerId] = ()  #: silent workers that are not lost yet (see ``find_spared``)


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkLost:
    """Close the row of a worker that sent no heartbeat for too long."""

    worker: Worker
    reason: str

    @property
    def is_crash(self) -> bool:
        """Whether the worker's jobs may have caused its loss (see ``Worker.has_crashed``)."""
        return stays(self.worker)


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkFailed:
    """Close the row of a worker because its instance has ended."""

    worker: Worker
    exit_code: int | None
    reason: str
    is_crash: bool = True  #: whether the worker's jobs may be the cause (see ``Worker.has_crashed``)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndOverdue:
    """End a worker that did not drain in time."""

    worker: Worker
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reap:
    """End the instance of an ended worker if it still runs, and record in the worker's row that the instance is gone."""

    worker_id: WorkerId
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EndStray:
    """End an instance that has no live row in ``workers``."""

    worker_id: WorkerId
    reason: str


Closing = MarkLost | MarkFailed | EndOverdue
Recovery = Closing | Reap | EndStray


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """The result of ``recover``: the actions to take, and the workers that remain after these actions."""

    actions: tuple[Recovery, ...]
    living: tuple[Worker, ...]  #: live workers that no action closes
    staying: tuple[Worker, ...]  #: living workers that are not leaving
    ended: tuple[Worker, ...] = ()  #: workers that have ended already
    absent: tuple[Worker, ...] = ()  #: live workers that the provider lists no instance for


def recover(snapshot: PoolSnapshot) -> Recovered:
    """Decide which dead workers' rows to close, and which instances to end (of ended workers, or without a worker row)."""
    unusual = _unusual(snapshot)
    ended = tuple([worker for worker in unusual if worker.status in TERMINAL])
    live = snapshot.workers if not ended else tuple([worker for worker in snapshot.workers if worker.status in LIVE])
    closing = close(snapshot, live, [worker for worker in unusual if worker.status in LIVE])
    closed = {action.worker.worker_id for action in closing}
    living = live if not closed else tuple([worker for worker in live if worker.worker_id not in closed])
    listed = {instance.worker_id for instance in snapshot.instances}
    absent = tuple([worker for worker in live if worker.worker_id not in listed])
    some_are_strays = len(listed) > len(live) - len(absent)
    some_leave = any(not stays(worker) for worker in unusual)
    return Recovered(
        actions=(*closing, *reap(snapshot, ended), *(end_strays(snapshot) if some_are_strays else ())),
        living=living,
        staying=tuple([worker for worker in living if stays(worker)]) if some_leave else living,
        ended=ended,
        absent=absent,
    )


def _unusual(snapshot: PoolSnapshot) -> list[Worker]:
    """Return the workers to check closely: all except active workers with a recent heartbeat that were not asked to drain."""
    fresh, usual = snapshot.now - snapshot.thresholds.stale_after, WorkerStatus.ACTIVE
    return [
        worker
        for worker in snapshot.workers
        if worker.status is not usual
        or worker.drain_deadline is not None
        or worker.heartbeat_at is None
        or worker.heartbeat_at < fresh
    ]


def stays(worker: Worker) -> bool:
    """Whether a worker stays, that is, it is not draining and was not asked to drain."""
    return worker.drain_deadline is None and worker.status is not WorkerStatus.DRAINING


def close(snapshot: PoolSnapshot, live: Sequence[Worker], unusual: Sequence[Worker]) -> list[Closing]:
    """Return actions that mark workers as ended, at most one per worker: workers in ``live`` that failed, and workers in
    ``unusual`` that are lost or did not drain by their deadline.

    ``unusual``: the live workers that are not active, have no recent heartbeat, or were asked to drain."""
    closing: dict[WorkerId, Closing] = {}
    for action in (*mark_failed(snapshot, live), *mark_lost(snapshot, unusual), *end_overdue(snapshot, unusual)):
        closing.setdefault(action.worker.worker_id, action)
    return list(closing.values())


def mark_failed(snapshot: PoolSnapshot, live: Sequence[Worker]) -> list[Closing]:
    """Return actions that mark workers as failed because all their listed instances (processes or pods) have ended. If the
    provider can run two instances of one worker (``unique_names`` is False), skips workers with a recent heartbeat: a second
    instance might be running that is not listed yet."""
    over = [instance for instance in snapshot.instances if not instance.running]
    if not over:
        return []
    running = {instance.worker_id for instance in snapshot.instances if instance.running}
    ended = {instance.worker_id: instance.exit_code for instance in over if instance.worker_id not in running}
    return [
        MarkFailed(
            worker=worker,
            exit_code=ended[worker.worker_id],
            reason=f"its instance ended: {_how_it_ended(ended[worker.worker_id])}",
            is_crash=_is_crash(snapshot, worker, ended[worker.worker_id]),
        )
        for worker in live
        if worker.worker_id in ended and (snapshot.unique_names or not _has_recent_heartbeat(worker, snapshot))
    ]


def _is_crash(snapshot: PoolSnapshot, worker: Worker, exit_code: int | None) -> bool:
    """Whether the jobs of a worker may be the cause of its process's end.

    Not if it was leaving, or ended itself because it lost the store or its controller. A job can end the process with the
    same exit codes: then the worker has sent heartbeats until shortly before, and a controller has watched it.
    """
    if not stays(worker):
        return False
    if exit_code == ExitCode.CONTROLLER_GONE:
        return worker.heartbeat_at is not None and worker.heartbeat_at >= snapshot.looking_since
    lost_store = snapshot.thresholds.give_up_after - snapshot.thresholds.heartbeat_every
    return exit_code not in {ExitCode.CLEAN, ExitCode.STORE_LOST} or silence(worker, snapshot.now) < lost_store


def _has_recent_heartbeat(worker: Worker, snapshot: PoolSnapshot) -> bool:
    """Whether a worker has joined and missed no heartbeat."""
    return (
        worker.heartbeat_at is not None and silence(worker, snapshot.now) <= snapshot.thresholds.heartbeat_every * _MISSED_AFTER
    )


def mark_lost(snapshot: PoolSnapshot, live: Sequence[Worker]) -> list[Closing]:
    """Return actions that close rows of workers silent for too long; time without a controller does not count.

    A worker that its engine refused to start is not lost: the engine is asked again to start it. ``snapshot.spared`` are not
    lost yet."""
    return [
        MarkLost(worker=worker, reason=f"silent for {silence(worker, snapshot.now).total_seconds():.0f} s")
        for worker in live
        if judge(worker, snapshot.now, snapshot.thresholds, snapshot.looking_since) is Health.LOST
        and refusal_of(worker) is None
        and worker.worker_id not in snapshot.spared
    ]


def find_spared(snapshot: PoolSnapshot, watched_since: datetime, last_at: datetime | None) -> tuple[WorkerId, ...]:
    """Return the workers that are silent for long enough to be lost, but might still send a heartbeat: their process runs, and
    nobody watched the pool when they fell silent, so the machine may have been suspended, or the clock set.

    A worker is spared only briefly: not if an earlier beat, at least one and a half heartbeat intervals ago, found it silent.

    ``watched_since``: the time since which controllers watch the pool without a gap. ``last_at``: the time of the last beat.
    """
    thresholds = snapshot.thresholds
    before = snapshot.now - thresholds.heartbeat_every * _MISSED_AFTER
    if watched_since < before:
        return ()
    running = {instance.worker_id for instance in snapshot.instances if instance.running}
    latest = last_at if last_at is not None and last_at < before else None
    return tuple(
        worker.worker_id
        for worker in snapshot.workers
        if worker.worker_id in running
        and worker.heartbeat_at is not None
        and silence(worker, snapshot.now) > thresholds.lost_after
        and watched_since - worker.heartbeat_at > thresholds.stale_after
        and (latest is None or latest - worker.heartbeat_at <= thresholds.stale_after)
    )


def end_overdue(snapshot: PoolSnapshot, live: Sequence[Worker]) -> list[Closing]:
    """Return actions that end workers that are past their drain deadline."""
    return [
        EndOverdue(worker=worker, reason=f"did not drain by {worker.drain_deadline:%H:%M:%S}")
        for worker in live
        if worker.drain_deadline is not None and worker.drain_deadline < snapshot.now
    ]


def reap(snapshot: PoolSnapshot, ended: Sequence[Worker]) -> list[Reap]:
    """Return actions that end the instances of ended workers that were not reaped yet. Skips a worker for now if its
    instance might still appear in the provider's list (see ``may_still_appear``), as only a listed instance can be ended."""
    listed = {instance.worker_id for instance in snapshot.instances}
    return [
        Reap(worker_id=worker.worker_id, reason=f"it ended as {worker.status}")
        for worker in ended
        if worker.reaped_at is None and (worker.worker_id in listed or not may_still_appear(snapshot, worker))
    ]


def may_still_appear(snapshot: PoolSnapshot, worker: Worker) -> bool:
    """Whether a worker's instance might still appear in the provider's list: it was requested recently, and not seen so far."""
    was_seen = bool(worker.provider_ref) or worker.heartbeat_at is not None
    if was_seen or worker.was_refused:
        return False
    return snapshot.now - asked_at(worker, snapshot.now) < snapshot.settle


def end_strays(snapshot: PoolSnapshot) -> list[EndStray]:
    """Return actions that end strays: running instances without a worker row, or of a worker that has ended and was reaped.

    A new worker's instance is never a stray, because its row is created before the instance is requested.
    """
    asked_for = {worker.worker_id for worker in snapshot.workers if worker.reaped_at is None or worker.status in LIVE}
    strays = [instance.worker_id for instance in snapshot.instances if instance.running and instance.worker_id not in asked_for]
    return [
        EndStray(worker_id=worker_id, reason="it runs, but the store has no live worker of this id")
        for worker_id in dict.fromkeys(strays)
    ]


def may_be_exiting(snapshot: PoolSnapshot, worker_id: WorkerId) -> bool:
    """Whether a worker just left by itself, but its process is still listed as running. A kill would lose its last output."""
    left = {WorkerStatus.TERMINATED, WorkerStatus.ERROR}
    return any(instance.worker_id == worker_id and instance.running for instance in snapshot.instances) and any(
        row.worker_id == worker_id and row.status in left and row.ended_at is not None and snapshot.now - row.ended_at < LINGER
        for row in snapshot.workers
        if not row.meta.get("drain_timed_out")
    )


def may_run(snapshot: PoolSnapshot) -> list[Worker]:
    """Return the workers that might have a running instance, including draining workers and ended workers not yet reaped.

    Leaves out workers that the provider refused to start, reaped workers, and workers whose instance has surely ended. Such an
    end is known only if the provider gave a complete list and never runs two instances of one worker (``unique_names``).
    """
    rows = [row for row in snapshot.workers if row.reaped_at is None and not row.was_refused]
    if snapshot.partial or not snapshot.unique_names:
        return rows
    running = {instance.worker_id for instance in snapshot.instances if instance.running}
    over = {instance.worker_id for instance in snapshot.instances} - running
    return [row for row in rows if row.worker_id in running or not _is_over(row, over, snapshot)]


def _is_over(row: Worker, over: Set[WorkerId], snapshot: PoolSnapshot) -> bool:
    """Whether a worker without a listed running instance is surely gone. ``over``: the workers whose instances are all
    listed as ended. False for a worker of another provider, as this provider's list does not show its instance."""
    if not covers(snapshot.provider, row.provider):
        return False
    return row.worker_id in over or (row.status in TERMINAL and not may_still_appear(snapshot, row))


def unconfirmed(workers: Sequence[Worker]) -> list[Worker]:
    """Return the workers that might still run, because their engine has not confirmed that their instances are gone.

    Leaves out workers that the engine refused to start, and workers that left by themselves."""
    left = [row for row in workers if row.status is WorkerStatus.TERMINATED and row.heartbeat_at is not None]
    by_themselves = {row.worker_id for row in left if not row.meta.get("drain_timed_out")}
    rest = [row for row in workers if row.reaped_at is None and row.worker_id not in by_themselves]
    return [row for row in rest if not row.was_refused]


def never_started(snapshot: PoolSnapshot, staying: Sequence[Worker]) -> list[Worker]:
    """Return the ``spawning`` workers without a listed instance, for example because a controller died before the request."""
    asked_for = [worker for worker in staying if worker.status is WorkerStatus.SPAWNING]
    if not asked_for:
        return []
    listed = {instance.worker_id for instance in snapshot.instances}
    return [worker for worker in asked_for if worker.worker_id not in listed]


def asked_at(row: Worker, now: datetime) -> datetime:
    """Return when a worker's instance was last requested: the last repeated request, else the creation of its row, else now."""
    again = row.meta.get(ASKED_AT)
    return datetime.fromisoformat(again) if isinstance(again, str) else row.created_at or now


def next_number(snapshot: PoolSnapshot) -> int:
    """Return one more than the highest N in the names ``worker-N`` of this pool's workers and instances."""
    names = {*(worker.worker_id for worker in snapshot.workers), *(instance.worker_id for instance in snapshot.instances)}
    numbers = [int(number) for name in names if (number := name.removeprefix("worker-")).isdecimal()]
    return max(numbers, default=-1) + 1


def _how_it_ended(exit_code: int | None) -> str:
    if exit_code is None:
        return "exit code unknown"
    return f"killed by signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"
