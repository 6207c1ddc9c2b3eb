"""A schedule and its ticks, the times at which it pushes a job. Pure: the time is an argument."""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import count, takewhile
from typing import Any

from drumbeat.core.cron import moments_after, parse_schedule, zone
from drumbeat.core.errors import InvalidInput, InvalidSettings
from drumbeat.core.job import JobId
from drumbeat.core.plain import short_repr
from drumbeat.core.pool import PoolId, PoolRow

SHORTEST, LONGEST = timedelta(seconds=1), timedelta(days=36_500)  #: bounds of the interval of a schedule
LATE_AFTER = timedelta(minutes=5)  #: a tick that was not pushed within this time counts as missed
MOST_CAUGHT_UP = 100  #: most missed ticks of a schedule that are pushed at once; older ones are dropped
MOST_UNCONFIRMED = 2 * MOST_CAUGHT_UP  #: most ticks of a schedule that are pushed again; older ones are dropped
LONGEST_NAME = 200
DEFINITION, PROGRESS = "schedule/", "ticked/"  #: keys in the pool's policy begin with these; the schedule's name follows
_NEVER_IN_NAMES = frozenset("/\\@")
_WINDOWS = tuple(timedelta(hours=hours) for hours in (2, 48, 24 * 60, 24 * 366, 24 * 366 * 9))
_LARGEST_FLOAT = sys.float_info.max
_TICK = "%Y%m%dT%H%M%S"


class MissedTicks(StrEnum):
    """What to do with ticks that passed while no process was there to push their jobs, or while the schedule was paused."""

    SKIP = "skip"  #: drop them
    ONCE = "once"  #: push one job for all of them
    ALL = "all"  #: push a job for each of them, up to MOST_CAUGHT_UP


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSchedule:
    """A schedule of a pool: when it is due, and the job that it then pushes. It has either ``cron`` or ``every``."""

    name: str
    cron: str | None = None  #: cron expression with five fields
    every: timedelta | None = None
    tz: str | None = None  #: time zone of ``cron``; None: UTC
    missed: MissedTicks = MissedTicks.ONCE
    payload: Any = None
    options: Mapping[str, Any] = field(default_factory=dict)  #: options of the job, such as type and priority, as JSON
    paused: bool = False
    module: str | None = None  #: the Python module that defines the schedule in code
    file: str | None = None  #: the file of this module, which tells it from a module of the same name in another application
    since: datetime  #: only ticks after this time count: when the schedule was added or last changed
    anchor: datetime  #: the time from which ``every`` is counted

    def ticks_after(self, moment: datetime) -> Iterator[datetime]:
        """Yield the ticks after ``moment``, in UTC and in order."""
        if self.every is None:
            return moments_after(parse_schedule(self.cron or ""), moment, zone(self.tz))
        first = max((moment - self.anchor) // self.every + 1, 1)
        return (self.anchor + self.every * n for n in count(first))

    @property
    def timing(self) -> str:
        """When the schedule is due, as text."""
        if self.every is not None:
            return f"every {self.every.total_seconds():g} s"
        return f"{self.cron} ({self.tz or 'UTC'})"

    def is_same_as(self, other: "JobSchedule") -> bool:
        """Whether this and the other schedule push the same jobs at the same times. Pauses, change times and the module that
        defines the schedule do not count."""
        same = replace(other, paused=self.paused, since=self.since, anchor=self.anchor, module=self.module, file=self.file)
        same = replace(same, payload=self.payload, options=self.options)
        return self == same and _is_same_json([self.payload, self.options], [other.payload, other.options])

    def to_json(self) -> dict[str, Any]:
        every = None if self.every is None else self.every.total_seconds()
        fields = {"cron": self.cron, "every": every, "tz": self.tz, "missed": self.missed.value, "payload": self.payload}
        more = {"options": dict(self.options), "paused": self.paused, "module": self.module, "file": self.file}
        return {**fields, **more, "since": self.since.isoformat(), "anchor": self.anchor.isoformat()}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleProgress:
    """How far a schedule has come: the last tick that was pushed or dropped, and ticks whose job may not have been pushed."""

    since: datetime  #: the ``since`` of the schedule that this belongs to; after a change of the schedule it starts again
    last: datetime  #: the last tick that was pushed or dropped
    unconfirmed: tuple[datetime, ...] = ()  #: ticks that a process was about to push, and did not confirm
    written_at: datetime  #: when the oldest unconfirmed tick was written down, by the store's clock
    problem: str | None = None  #: why the jobs of the last ticks were not pushed; None if they were

    def to_json(self) -> dict[str, Any]:
        times = {"since": self.since.isoformat(), "last": self.last.isoformat(), "written_at": self.written_at.isoformat()}
        return {**times, "unconfirmed": [tick.isoformat() for tick in self.unconfirmed], "problem": self.problem}

    def noted_at(self, tick: datetime) -> datetime:
        """Return the earliest time at which the job of this unconfirmed tick can have been pushed."""
        return max(tick, self.written_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class DueTicks:
    """Which ticks of a schedule are due, and which of these are pushed according to its policy for missed ticks."""

    last: datetime  #: the newest tick that is due
    pushed: tuple[datetime, ...]
    dropped: bool  #: whether there were other due ticks, which are not pushed


def check_schedule(schedule: JobSchedule) -> None:
    """Raise InvalidInput for a schedule with an invalid name, time or time zone, or one that is never due."""
    check_schedule_name(schedule.name)
    try:
        _check_timing(schedule)
        if schedule.every is None:
            next(schedule.ticks_after(schedule.since))
    except InvalidSettings as exc:
        raise InvalidInput(f"schedule {schedule.name}: {exc}") from exc
    except StopIteration:
        raise InvalidInput(
            f"schedule {schedule.name}: expected a cron expression with a date that exists, got {schedule.cron!r}"
        ) from None


def _check_timing(schedule: JobSchedule) -> None:
    """Raise InvalidSettings unless the schedule has either a valid cron expression or a valid interval."""
    if (schedule.cron is None) == (schedule.every is None):
        raise InvalidSettings(f"expected either cron or every, got {'neither' if schedule.cron is None else 'both'}")
    if schedule.cron is not None:
        parse_schedule(schedule.cron)
        zone(schedule.tz)
    elif schedule.tz is not None:
        raise InvalidSettings("expected tz only with cron, got it with every, which needs no time zone")
    elif schedule.every is None or not SHORTEST <= schedule.every <= LONGEST:
        raise InvalidSettings(f"expected every to be 1 s to a hundred years, got {schedule.every}")


def check_schedule_name(name: Any) -> None:
    """Raise InvalidInput if this name is not allowed for a schedule."""
    is_text = isinstance(name, str) and 0 < len(name) <= LONGEST_NAME and name.isprintable() and name == name.strip()
    if not is_text or _NEVER_IN_NAMES & set(name):
        raise InvalidInput(
            f"expected the name of a schedule as 1 to {LONGEST_NAME} printable characters, no /, \\ or @, no space at the "
            f"start or end, got {name!r}"
        )


def tick_job_id(pool_id: PoolId, name: str, tick: datetime) -> JobId:
    """Return the job id of a tick. It is equal in all processes, so a tick has one job even if several processes push it."""
    fraction = f".{tick.microsecond:06d}" if tick.microsecond else ""
    return JobId(f"{name}@{tick.astimezone(UTC):{_TICK}}{fraction}Z@{pool_id}")


def tick_of(job_id: str, pool_id: PoolId) -> tuple[str, datetime] | None:
    """Return the schedule and the tick that a job belongs to; None if no schedule of this pool pushed it."""
    parts = job_id.split("@", 2)
    if len(parts) != 3 or parts[2] != pool_id:
        return None
    try:
        shown = parts[1] if "." in parts[1] else parts[1].replace("Z", ".0Z")
        return parts[0], datetime.strptime(shown, f"{_TICK}.%fZ").replace(tzinfo=UTC)
    except ValueError:
        return None


def due_ticks(schedule: JobSchedule, last: datetime, now: datetime) -> DueTicks | None:
    """Return the ticks after ``last`` that are due, by the schedule's policy for missed ticks; None if none is due."""
    ticks: list[datetime] = []
    for window in _WINDOWS:
        begin = max(last, now - window)
        ticks = list(takewhile(lambda tick: tick <= now, schedule.ticks_after(begin)))
        if begin == last or len(ticks) > MOST_CAUGHT_UP:
            break
    if not ticks:
        return None
    match schedule.missed:
        case MissedTicks.ALL:
            pushed = ticks[-MOST_CAUGHT_UP:]
        case MissedTicks.ONCE:
            pushed = ticks[-1:]
        case _:
            pushed = [tick for tick in ticks[-1:] if now - tick <= LATE_AFTER]
    return DueTicks(last=ticks[-1], pushed=tuple(pushed), dropped=len(pushed) < len(ticks))


def last_tick(schedule: JobSchedule, progress: ScheduleProgress | None) -> datetime:
    """Return the time up to which the ticks of a schedule are settled: pushed, dropped, or before its last change."""
    return progress.last if progress is not None and progress.since == schedule.since else schedule.since


def _is_same_json(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal. Unlike in Python, 1 does not equal true. A float equals the same
    whole number, because a store can change one into the other: PostgreSQL returns 1e300 as a whole number."""
    match one, other:
        case (bool(), _) | (_, bool()):
            return one is other
        case dict(), dict():
            return one.keys() == other.keys() and all(_is_same_json(value, other[name]) for name, value in one.items())
        case list(), list():
            return len(one) == len(other) and all(map(_is_same_json, one, other))
        case (float(), int()) | (int(), float()):
            return abs(one) <= _LARGEST_FLOAT and abs(other) <= _LARGEST_FLOAT and float(one) == float(other)
        case _:
            return bool(one == other)


def read_missed(value: Any) -> MissedTicks:
    """Return the policy for missed ticks with this name. Raises InvalidInput."""
    try:
        return MissedTicks(value)
    except ValueError as exc:
        raise InvalidInput(f"expected missed to be one of {', '.join(MissedTicks)}, got {short_repr(value)}") from exc


def read_schedule(name: str, value: Any) -> JobSchedule:
    """Read a schedule from a pool's policy. Raises InvalidSettings."""
    try:
        found = JobSchedule(
            name=name,
            cron=value["cron"],
            every=None if value["every"] is None else timedelta(seconds=value["every"]),
            tz=value["tz"],
            missed=MissedTicks(value["missed"]),
            payload=value["payload"],
            options=value["options"],
            paused=value["paused"],
            module=value.get("module"),
            file=value.get("file"),
            since=datetime.fromisoformat(value["since"]),
            anchor=datetime.fromisoformat(value["anchor"]),
        )
        _check_timing(found)
    except (KeyError, TypeError, ValueError, OverflowError, InvalidSettings) as exc:
        raise InvalidSettings(f"schedule {name!r} cannot be read: {exc}; remove it and add it again") from exc
    return found


def read_progress(value: Any) -> ScheduleProgress | None:
    """Read the progress of a schedule from a pool's policy; None if there is none yet, or if it cannot be read."""
    try:
        return ScheduleProgress(
            since=datetime.fromisoformat(value["since"]),
            last=datetime.fromisoformat(value["last"]),
            unconfirmed=tuple(datetime.fromisoformat(tick) for tick in value["unconfirmed"]),
            written_at=datetime.fromisoformat(value["written_at"]),
            problem=value.get("problem"),
        )
    except (KeyError, TypeError, ValueError):
        return None


def schedule_names(pool: PoolRow) -> tuple[str, ...]:
    """Return the names of a pool's schedules, sorted."""
    return tuple(sorted(key.removeprefix(DEFINITION) for key in pool.policy if key.startswith(DEFINITION)))


def is_schedule_key(key: str) -> bool:
    """Whether a key of a pool's policy belongs to a schedule."""
    return key.startswith((DEFINITION, PROGRESS))
