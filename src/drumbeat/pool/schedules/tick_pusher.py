"""Pushes the jobs of schedules when they are due. Any number of processes can do this; each tick still has only one job.

A tick is pushed in three steps, of which the first and the last are fenced by a lease: write down that the tick will be pushed,
push its job under an id that every process would choose, write down that it was pushed. A process that dies in between leaves
an unconfirmed tick, which the next process pushes again; if the job exists already, this does nothing.
"""

import logging
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from drumbeat.core.clock import Clock
from drumbeat.core.errors import (
    AlreadyExists,
    DrumbeatError,
    Fenced,
    InvalidInput,
    InvalidSettings,
    LargeUnavailable,
    NotFound,
    Refused,
    StoreError,
)
from drumbeat.core.job import JobId, NewJob
from drumbeat.core.lease import Lease
from drumbeat.core.pool import PoolId, PoolKind, PoolRow
from drumbeat.core.retention import USUAL, read_retention, retention_of
from drumbeat.pool.job_options import new_job, options_without_effect
from drumbeat.pool.plugins import NO_PLUGINS, PoolPlugins
from drumbeat.pool.schedules.model import (
    DEFINITION,
    MOST_UNCONFIRMED,
    PROGRESS,
    JobSchedule,
    ScheduleProgress,
    due_ticks,
    last_tick,
    read_progress,
    read_schedule,
    schedule_names,
    tick_job_id,
)
from drumbeat.runtime.retention import NOTE
from drumbeat.store.interface import PoolChange, Store

log = logging.getLogger(__name__)

POLL_EVERY = timedelta(seconds=15)  #: the longest sleep between two reads of a pool's schedules: they can change
LOOKED_FOR = timedelta(seconds=60)  #: the note that a process has read the schedules is valid this long
_HELD = timedelta(seconds=15)  #: how long the lease lasts; a killed process delays its ticks by this long
_TRUSTED = timedelta(seconds=10)  #: after this time with the lease, stop pushing jobs: another process might get it soon
_REFUSALS = (InvalidInput, NotFound, AlreadyExists, Refused, LargeUnavailable)  #: errors of a push that one job can cause
_LONGEST_PROBLEM = 500  #: characters of an error that are stored with the schedule
_SHORTEST_WAIT, _SPREAD = timedelta(milliseconds=20), 0.1  #: seconds over which processes that wait for one tick are spread


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    """The jobs to push for the ticks that are due, and the new progress of their schedules, each by the schedule's name."""

    jobs: Mapping[str, Sequence[NewJob]]
    progress: Mapping[str, ScheduleProgress]
    orphans: tuple[str, ...]  #: keys of the policy that belong to removed schedules


class _TooLate(DrumbeatError):
    """Raised if another process may have the lease by now, so that no job may be pushed."""


class TickPusher:
    """Pushes the jobs of a pool's schedules that are due, by the store's clock."""

    def __init__(self, store: Store, clock: Clock, owner: str, plugins: Callable[[], PoolPlugins] = lambda: NO_PLUGINS) -> None:
        """``owner`` is unique to this process. ``plugins`` returns the middleware and the storage of large values for the jobs
        that are pushed; it is called only when jobs are due, since it may import middleware."""
        self._plugins = plugins
        self._store = store
        self._clock = clock
        self._owner = owner

    async def push_due(self, pool: PoolRow) -> timedelta | None:
        """Push the jobs that are due. Returns the time until the next tick; None if the pool has no active schedule.

        ``pool`` can be out of date: if something seems due, the pool is read again.
        """
        if not schedule_names(pool):
            return None
        now = await self._store.now()
        await self._mark_looked(pool.pool_id, now)
        schedules = read_schedules(pool)
        if any(_is_due(pool, schedule, now) for schedule in schedules.values()):
            await self._push_under_lease(pool.pool_id)
        waits = [next(each.ticks_after(now)) - now for each in schedules.values() if not each.paused]
        return min(waits, default=None)

    async def try_to_push_due(self, pool: PoolRow) -> None:
        """Push the jobs that are due, like ``push_due``; an error is only logged."""
        try:
            await self.push_due(pool)
        except DrumbeatError as exc:
            log.warning("failed to push the due jobs of schedules of %s: %s; the next beat retries", pool.pool_id, exc)

    async def keep(self, pool_id: PoolId) -> None:
        """Push the jobs of a pool's schedules when they are due, until cancelled. Errors are logged and retried.
        Returns at once if the pool has no queue."""
        longest = max(POLL_EVERY, self._store.traits.shortest_beat)
        while True:
            wait = longest
            try:
                pool = await self._store.pools.find(pool_id)
                if pool is not None and pool.kind is not PoolKind.JOBS:
                    return
                next_in = None if pool is None else await self.push_due(pool)
                if next_in is not None:
                    spread = timedelta(seconds=random.uniform(0, _SPREAD))  # noqa: S311 - not a secret
                    wait = min(max(next_in, _SHORTEST_WAIT) + spread, longest)
            except DrumbeatError as exc:
                log.warning("failed to push the due jobs of schedules of %s: %s; retrying in %s", pool_id, exc, wait)
            except Exception:
                log.exception("failed to push the due jobs of schedules of %s; retrying in %s", pool_id, wait)
            await self._clock.sleep(wait)

    async def _mark_looked(self, pool_id: PoolId, now: datetime) -> None:
        """Record in the store that a process pushes the due jobs of this pool's schedules, unless a recent record says so."""
        lease = await self._store.leases.find(looked_lease(pool_id))
        if lease is None or lease.expires_at <= now:
            await self._store.leases.acquire(looked_lease(pool_id), self._owner, LOOKED_FOR)

    async def _push_under_lease(self, pool_id: PoolId) -> None:
        """Push the jobs of all due ticks of the pool, unless another process is pushing them now."""
        asked = self._clock.elapsed()
        lease = await self._store.leases.acquire(f"schedules/{pool_id}", self._owner, _HELD)
        if lease is None:
            return
        try:
            await self._push(pool_id, lease, asked + _TRUSTED)
        except Fenced as exc:
            log.warning(
                "stopped pushing the due jobs of the schedules of pool %s, because another process pushes them now: %s",
                pool_id,
                exc,
            )
        finally:
            with suppress(StoreError):
                await self._store.leases.release(lease)

    async def _push(self, pool_id: PoolId, lease: Lease, trusted_until: timedelta) -> None:
        now = await self._store.now()  # read before the pool: a schedule that changed since then has no tick before now
        pool = await self._store.pools.get(pool_id)
        batch = await self._batch(pool, now)
        if not batch.progress and not batch.orphans:
            return
        plugins = self._plugins() if batch.jobs else NO_PLUGINS
        await self._write(pool_id, lease, batch.progress, batch.orphans)
        if settled := await self._push_jobs(pool_id, batch, plugins, trusted_until):
            await self._write(pool_id, lease, settled)

    async def _push_jobs(
        self, pool_id: PoolId, batch: _Batch, plugins: PoolPlugins, trusted_until: timedelta
    ) -> dict[str, ScheduleProgress]:
        """Push the jobs of a batch. Returns the new progress of the schedules whose jobs were pushed or refused.

        All jobs go in one push. If the store refuses the push, each half is pushed alone, and so on, until the schedules with
        refused jobs are found.
        """

        def check_trusted() -> None:
            if self._clock.elapsed() >= trusted_until:
                raise _TooLate("this process's lease may have expired; the next check of the schedules pushes the jobs")

        async def send(jobs: Sequence[NewJob]) -> Sequence[JobId]:
            check_trusted()
            return await self._store.queue.push(pool_id, jobs)

        settled, groups = dict[str, ScheduleProgress](), [tuple(batch.jobs)] if batch.jobs else []
        while groups:
            names = groups.pop()
            try:
                check_trusted()
                await plugins.push(pool_id, [job for name in names for job in batch.jobs[name]], send)
            except _TooLate:
                log.warning(
                    "the due jobs of schedules of %s were not pushed in time; the next check of the schedules pushes them",
                    pool_id,
                )
                break
            except InvalidSettings:
                raise  # of this process, not of a schedule
            except _REFUSALS as exc:
                if len(names) == 1:
                    settled[names[0]] = _refused(pool_id, names[0], batch.progress[names[0]], exc)
                else:
                    groups += [names[len(names) // 2 :], names[: len(names) // 2]]
            else:
                settled |= {name: replace(batch.progress[name], unconfirmed=()) for name in names}
        return settled

    async def _write(
        self, pool_id: PoolId, lease: Lease, progress: Mapping[str, ScheduleProgress], orphans: tuple[str, ...] = ()
    ) -> None:
        policy = {PROGRESS + name: each.to_json() for name, each in progress.items()}
        await self._store.pools.change(pool_id, PoolChange(policy=policy, dropped=orphans), fence=lease.fence)

    async def _batch(self, pool: PoolRow, now: datetime) -> _Batch:
        """Return what to push now: the jobs of due ticks, and of ticks that a process began to push but did not confirm before
        it died."""
        jobs, progress = dict[str, Sequence[NewJob]](), dict[str, ScheduleProgress]()
        schedules = read_schedules(pool)
        for name, schedule in schedules.items():
            before = read_progress(pool.policy.get(PROGRESS + name))
            again = await self._again(pool, name, before, now)
            ticks, last = _ticks(pool, schedule, before, again, now)
            if last is None:
                continue
            written_at = before.written_at if before is not None and again else now
            noted = ScheduleProgress(since=schedule.since, last=last, unconfirmed=ticks, written_at=written_at)
            try:
                built = [_job(pool.pool_id, schedule, tick) for tick in ticks]
            except InvalidInput as exc:
                noted = _refused(pool.pool_id, name, noted, exc)
            else:
                jobs |= {name: built} if built else {}
            progress[name] = noted
        named = set(schedule_names(pool))
        orphans = [key for key in pool.policy if key.startswith(PROGRESS) and key.removeprefix(PROGRESS) not in named]
        return _Batch(jobs=jobs, progress=progress, orphans=tuple(orphans))

    async def _again(self, pool: PoolRow, name: str, progress: ScheduleProgress | None, now: datetime) -> tuple[datetime, ...]:
        """Return the ticks of a schedule to push again, because a process died before it confirmed them.

        If the job of a tick could have been pushed, done and deleted by retention meanwhile, the tick is not pushed again.
        """
        if progress is None or not progress.unconfirmed:
            return ()
        kept_for = await self._kept_for(pool)
        again = [tick for tick in progress.unconfirmed if kept_for is None or now - progress.noted_at(tick) < kept_for]
        if given_up := [tick.isoformat() for tick in progress.unconfirmed if tick not in again]:
            log.warning(
                "schedule %s of pool %s: a process died while it pushed the jobs due at %s; these may have run and been "
                "deleted since, so they are not pushed again; push them by hand if they did not run",
                *(name, pool.pool_id, ", ".join(given_up)),
            )
        return tuple(again)

    async def _kept_for(self, pool: PoolRow) -> timedelta | None:
        """Return how long the pool keeps ended jobs: the shorter of its two retention times for them; None: forever."""
        note = await self._store.notes.find(NOTE)
        try:
            retention = retention_of(pool, USUAL if note is None else read_retention(str(note.value.get(NOTE))))
        except InvalidSettings:
            retention = USUAL
        return min((each for each in (retention.jobs, retention.poisoned) if each is not None), default=None)


def read_schedules(pool: PoolRow) -> dict[str, JobSchedule]:
    """Return the schedules of a pool by name. Logs and leaves out schedules that cannot be read."""
    found = {}
    for name in schedule_names(pool):
        try:
            found[name] = read_schedule(name, pool.policy[DEFINITION + name])
        except InvalidSettings as exc:
            log.error("pool %s: %s", pool.pool_id, exc)
    return found


def looked_lease(pool_id: PoolId) -> str:
    """Return the name of a lease that a process acquires when it checks a pool's schedules. The time at which the lease
    expires, minus ``LOOKED_FOR``, is the time of the last check."""
    return f"schedules/looked/{pool_id}"


def _is_due(pool: PoolRow, schedule: JobSchedule, now: datetime) -> bool:
    progress = read_progress(pool.policy.get(PROGRESS + schedule.name))
    if progress is not None and progress.unconfirmed:
        return True
    return not schedule.paused and next(schedule.ticks_after(last_tick(schedule, progress))) <= now


def _ticks(
    pool: PoolRow, schedule: JobSchedule, progress: ScheduleProgress | None, again: tuple[datetime, ...], now: datetime
) -> tuple[tuple[datetime, ...], datetime | None]:
    """Return the ticks of a schedule to push, and the last tick that is then dealt with (None: there is nothing to do)."""
    last = last_tick(schedule, progress)
    due = None if schedule.paused else due_ticks(schedule, last, now)
    if due is None:
        return again, last if progress is not None and progress.unconfirmed else None
    if due.dropped:
        log.warning(
            "schedule %s of pool %s missed ticks after %s; its option for missed ticks is %s; pushing %d jobs now",
            *(schedule.name, pool.pool_id, last, schedule.missed, len(due.pushed)),
        )
    ticks = (*again, *(tick for tick in due.pushed if tick not in again))
    if len(ticks) > MOST_UNCONFIRMED:
        log.warning(
            "schedule %s of pool %s could not push the jobs of more than %d ticks; the oldest are dropped: %s",
            *(schedule.name, pool.pool_id, MOST_UNCONFIRMED, ", ".join(map(str, ticks[:-MOST_UNCONFIRMED]))),
        )
    return ticks[-MOST_UNCONFIRMED:], due.last


def _refused(pool_id: PoolId, name: str, progress: ScheduleProgress, error: DrumbeatError) -> ScheduleProgress:
    """Return the progress of a schedule whose jobs were refused. Its ticks are dropped, unless a later push might succeed."""
    ticks = ", ".join(tick.isoformat() for tick in progress.unconfirmed)
    if isinstance(error, LargeUnavailable):
        log.warning(
            "schedule %s of pool %s pushed no job for the ticks %s: %s; the next check retries", name, pool_id, ticks, error
        )
        return replace(progress, problem=_problem(name, error, "the next check of the schedules retries"))
    log.error(
        "schedule %s of pool %s pushed no job for the ticks %s: %s; add it again with --update", name, pool_id, ticks, error
    )
    return replace(progress, unconfirmed=(), problem=_problem(name, error, "add the schedule again with --update"))


def _problem(name: str, error: DrumbeatError, remedy: str) -> str:
    return f"schedule {name} pushed no job at its last tick: {str(error)[:_LONGEST_PROBLEM]}; {remedy}"


def _job(pool_id: PoolId, schedule: JobSchedule, tick: datetime) -> NewJob:
    useless = options_without_effect(schedule.options)  # earlier versions stored such options
    options = {name: value for name, value in schedule.options.items() if name not in useless}
    return new_job(schedule.payload, **options, job_id=tick_job_id(pool_id, schedule.name, tick))
