"""Adds, lists, pauses, resumes and removes the schedules of a pool."""

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

import msgspec

from drumbeat.core.errors import AlreadyExists, InvalidInput, InvalidSettings, NotFound, Refused, StaleWrite
from drumbeat.core.plain import short_repr, time_span
from drumbeat.core.pool import PoolId, PoolRow
from drumbeat.pool.job_options import new_job
from drumbeat.pool.schedules.model import (
    DEFINITION,
    PROGRESS,
    JobSchedule,
    MissedTicks,
    check_schedule,
    last_tick,
    read_missed,
    read_progress,
    read_schedule,
    schedule_names,
)
from drumbeat.pool.schedules.tick_pusher import LOOKED_FOR, POLL_EVERY, looked_lease, read_schedules
from drumbeat.pool.validation import check_duration, check_text
from drumbeat.store.interface import PoolChange, Store

MOST_SCHEDULES = 500  #: per pool
MOST_BYTES = 64 * 1024  #: largest payload of a schedule: all schedules of a pool are stored in its row
_NO_PARENTS = ("after", "after_any", "if_failed")  #: options of a push that a schedule's jobs cannot have
SHOWN = 5  #: how many of the next ticks are shown


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleStatus:
    """A schedule, its last tick, its next ticks, and whether a process pushes them."""

    pool_id: PoolId
    schedule: JobSchedule
    last: datetime | None  #: the last tick that was pushed or dropped; None: no tick since the schedule was added or changed
    upcoming: tuple[datetime, ...]  #: the next ticks, in UTC; empty while the schedule is paused
    problem: str | None = None  #: why ticks would not be pushed now, or why the last one was not; None if all is well

    @property
    def name(self) -> str:
        return self.schedule.name

    @property
    def lines(self) -> tuple[str, ...]:
        """What there is to say about the schedule: when it is due, its next ticks, and a problem."""
        schedule = self.schedule
        when = f"schedule {schedule.name} ({schedule.timing})"
        if schedule.paused:
            return (f"{when} is paused; resume it with: drumbeat pool schedule resume {self.pool_id} {schedule.name}",)
        ticks = ", ".join(f"{tick:%Y-%m-%d %H:%M:%S}" for tick in self.upcoming)
        said = f"{when}, missed ticks: {schedule.missed}; next ticks (UTC): {ticks}"
        return (said, self.problem) if self.problem else (said,)


class Schedules:
    """The schedules of one pool. They are stored with the pool; ``add`` creates the pool if it does not exist."""

    def __init__(self, store: Store, pool_id: PoolId, create: Callable[[], Awaitable[PoolRow]]) -> None:
        """``create`` creates the pool, or returns it if it exists."""
        self._store = store
        self._pool_id = pool_id
        self._create = create

    async def add(
        self,
        name: str,
        payload: Any = None,
        *,
        cron: str | None = None,
        every: timedelta | float | None = None,
        tz: str | None = None,
        missed: MissedTicks | str = MissedTicks.ONCE,
        exist_ok: bool = False,
        module: str | None = None,
        file: str | None = None,
        **options: Any,
    ) -> JobSchedule:
        """Add a schedule that pushes a job with this payload: at the times of ``cron`` in the time zone ``tz``, or at an
        interval of ``every``. ``options`` are those of ``push``, except job_id, run_at, after and after_any.

        With ``exist_ok``, a schedule of this name is replaced for all ticks from now on; if it is equal, it stays as it is.
        ``module``: the Python module that defines the schedule, and ``file`` the file of this module.

        Raises AlreadyExists; InvalidInput, also for a schedule that is never due.
        """
        now = await self._store.now()
        given = JobSchedule(
            name=name,
            cron=None if cron is None else check_text("cron", cron),
            every=None if every is None else check_duration("every", every),
            tz=None if tz is None else check_text("tz", tz),
            missed=read_missed(missed),
            payload=_as_stored(new_job(payload, MOST_BYTES).payload),
            options=_as_stored(_options(options)),
            module=module,
            file=file,
            since=now,
            anchor=now.replace(microsecond=0),
        )
        check_schedule(given)
        while True:
            pool = await self._create()
            old, new = self._merged(pool, given, exist_ok=exist_ok)
            if new is old or await self._replace(pool, new):
                return new

    def _merged(self, pool: PoolRow, given: JobSchedule, *, exist_ok: bool) -> tuple[JobSchedule | None, JobSchedule]:
        """Return the stored schedule (None: none, or not readable) and the one to write; the same object if nothing changes."""
        names = schedule_names(pool)
        if given.name in names:
            if not exist_ok:
                raise AlreadyExists(f"pool {self._pool_id!r} already has a schedule {given.name!r}; change it with --update")
            try:
                old = read_schedule(given.name, pool.policy[DEFINITION + given.name])
            except InvalidSettings:
                return None, given
            if old.is_same_as(given):
                is_known = (old.module, old.file) == (given.module, given.file)
                return old, old if is_known else replace(old, module=given.module, file=given.file)
            return old, replace(given, paused=old.paused, anchor=old.anchor if old.every == given.every else given.anchor)
        if len(names) >= MOST_SCHEDULES:
            raise Refused(f"pool {self._pool_id!r} has {len(names)} schedules, the most that a pool can have; use another pool")
        return None, given

    async def list(self) -> Sequence[ScheduleStatus]:
        """Return the pool's schedules by name, with their next ticks. Raises NotFound for a pool that does not exist."""
        pool, now = await self._pool(), await self._store.now()
        names = schedule_names(pool)
        problem = await _problem(self._store, self._pool_id, now) if names else None
        return [_status(pool, name, now, problem) for name in names]

    async def get(self, name: str) -> ScheduleStatus:
        """Return one schedule with its next ticks. Raises NotFound."""
        return await schedule_status(self._store, await self._pool(), name)

    async def pause(self, name: str) -> JobSchedule:
        """Pause a schedule: it pushes nothing until it is resumed. Raises NotFound."""
        return await self._edit(name, lambda found: replace(found, paused=True))

    async def resume(self, name: str) -> JobSchedule:
        """Resume a paused schedule. Ticks that passed during the pause are missed ticks. Raises NotFound."""
        now = await self._store.now()

        def resumed(found: JobSchedule) -> JobSchedule:
            is_dropped = found.paused and found.missed is MissedTicks.SKIP
            return replace(found, paused=False, since=max(now, found.since) if is_dropped else found.since)

        return await self._edit(name, resumed)

    async def remove(self, name: str) -> None:
        """Remove a schedule. Jobs that it has pushed stay. Raises NotFound."""
        _check_exists(await self._pool(), name)
        await self._store.pools.change(self._pool_id, PoolChange(dropped=_keys([name])))

    async def remove_undefined(self, is_undefined: Callable[[JobSchedule], bool]) -> Sequence[str]:
        """Remove the schedules for which ``is_undefined`` returns True. Returns their names."""
        while True:
            pool = await self._pool()
            gone = [name for name, schedule in read_schedules(pool).items() if is_undefined(schedule)]
            if not gone or await self._change(pool, gone, PoolChange(dropped=_keys(gone))):
                return gone

    async def _edit(self, name: str, edit: Callable[[JobSchedule], JobSchedule]) -> JobSchedule:
        """Change a schedule; try again if another process changes it meanwhile. Raises NotFound, also if it was removed."""
        while True:
            pool = await self._pool()
            _check_exists(pool, name)
            old = read_schedule(name, pool.policy[DEFINITION + name])
            new = edit(old)
            if new == old or await self._replace(pool, new):
                return new

    async def _replace(self, pool: PoolRow, new: JobSchedule) -> bool:
        """Write a schedule. Returns False if another process has changed, added or removed it since the pool was read."""
        return await self._change(pool, [new.name], PoolChange(policy={DEFINITION + new.name: new.to_json()}))

    async def _change(self, pool: PoolRow, names: Iterable[str], change: PoolChange) -> bool:
        """Apply a change to these schedules. Returns False, without a change, if one of them was changed since it was read."""
        expected = {DEFINITION + name: pool.policy.get(DEFINITION + name) for name in names}
        try:
            await self._store.pools.change(self._pool_id, replace(change, expected=expected))
        except StaleWrite:
            return False
        return True

    async def _pool(self) -> PoolRow:
        return await self._store.pools.get(self._pool_id)


async def schedule_status(store: Store, pool: PoolRow, name: str) -> ScheduleStatus:
    """Return one schedule of a pool with its next ticks. Raises NotFound, InvalidSettings."""
    _check_exists(pool, name)
    now = await store.now()
    return _status(pool, name, now, await _problem(store, pool.pool_id, now))


def _check_exists(pool: PoolRow, name: str) -> None:
    """Raise NotFound unless the pool has a schedule with this name."""
    names = schedule_names(pool)
    if name not in names:
        raise NotFound(f"pool {pool.pool_id!r} has no schedule {name!r}; it has: {', '.join(names) or 'none'}")


def _keys(names: Iterable[str]) -> tuple[str, ...]:
    """Return the keys of the policy that belong to these schedules."""
    return tuple(prefix + name for name in names for prefix in (DEFINITION, PROGRESS))


async def _problem(store: Store, pool_id: PoolId, now: datetime) -> str | None:
    """Return a message if no process pushes the due jobs of the pool's schedules; None if one does."""
    lease = await store.leases.find(looked_lease(pool_id))
    remedy = f"run: drumbeat pool work {pool_id}, or check the pool by a trigger, a daemon or a fleet"
    if lease is None:
        return f"no process has looked after the schedules of {pool_id} yet, so no jobs are pushed; {remedy}"
    if now > lease.expires_at + max(POLL_EVERY, store.traits.shortest_beat) * 2:
        ago = time_span(now - lease.expires_at + LOOKED_FOR)
        return f"no process has looked after the schedules of {pool_id} for {ago}, so no jobs are pushed; {remedy}"
    return None


def _status(pool: PoolRow, name: str, now: datetime, problem: str | None) -> ScheduleStatus:
    schedule = read_schedule(name, pool.policy[DEFINITION + name])
    progress = read_progress(pool.policy.get(PROGRESS + name))
    settled = last_tick(schedule, progress)
    own = progress.problem if progress is not None and progress.since == schedule.since else None
    upcoming = () if schedule.paused else tuple(islice(schedule.ticks_after(max(settled, now)), SHOWN))
    last = None if settled == schedule.since else settled
    return ScheduleStatus(pool_id=pool.pool_id, schedule=schedule, last=last, upcoming=upcoming, problem=problem or own)


def _options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Check the options of a schedule's jobs, and return them as plain JSON values. Raises InvalidInput."""
    for name in ("job_id", "run_at"):
        if options.get(name) is not None:
            raise InvalidInput(f"expected no {name}: a schedule gives each job its own; got {short_repr(options[name])}")
    for name in _NO_PARENTS:
        if options.get(name):
            raise InvalidInput(f"expected no {name}: a schedule's jobs wait for no other job; got {short_repr(options[name])}")
    given = {name: value for name, value in options.items() if value is not None and name not in _NO_PARENTS}
    job = new_job(None, **given)
    return {name: msgspec.to_builtins(getattr(job, name)) for name in given}


def _as_stored(value: Any) -> Any:
    """Return a value as a store returns it, so that it can be compared with a stored one: tuples as lists, keys as text."""
    return json.loads(json.dumps(value))
