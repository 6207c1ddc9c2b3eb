"""Cron expressions with five fields: parse them, and compute when they are due in a time zone. Pure: no clock."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from drumbeat.core.errors import InvalidSettings
from drumbeat.core.plain import short_repr, whole_number

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_LONGEST_MONTH = {month: 30 if month in (4, 6, 9, 11) else 29 if month == 2 else 31 for month in range(1, 13)}
_MACROS: Mapping[str, str] = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_LARGEST_CHANGE = timedelta(hours=3)  #: clocks are never set forward or back by more, except where a whole date was skipped
_MAX_DAYS = 366 * 9  #: how many days to search: 29 February may be eight years away, around a turn of the century


@dataclass(frozen=True, slots=True, kw_only=True)
class _Field:
    """One of the five fields of a cron expression: its name, its allowed numbers and words."""

    name: str
    first: int
    last: int
    words: Mapping[str, int]

    def read(self, text: str) -> frozenset[int]:
        return frozenset(value for part in text.split(",") for value in self._part(part))

    def _part(self, part: str) -> range:
        span, stepped, step = part.partition("/")
        every = self._number(step, 1, self.last) if stepped else 1
        if span == "*":
            return range(self.first, self.last + 1, every)
        low, ranged, high = span.partition("-")
        first = self._number(low, self.first, self.last)
        last = self._number(high, self.first, self.last) if ranged else self.last if stepped else first
        if last < first:
            raise InvalidSettings(f"{self.name}: expected a range from low to high, like 1-5, got {span!r}")
        return range(first, last + 1, every)

    def _number(self, text: str, first: int, last: int) -> int:
        number = self.words.get(text.lower(), whole_number(text))
        if number is None or not first <= number <= last:
            raise InvalidSettings(f"{self.name}: expected {first} to {last}, got {short_repr(text)}")
        return number


_FIELDS = (
    _Field(name="minute", first=0, last=59, words={}),
    _Field(name="hour", first=0, last=23, words={}),
    _Field(name="day of month", first=1, last=31, words={}),
    _Field(name="month", first=1, last=12, words={word: n for n, word in enumerate(_MONTHS, 1)}),
    _Field(name="day of week", first=0, last=7, words={word: n for n, word in enumerate(_DAYS)}),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CronSchedule:
    """A parsed cron expression. If it restricts day of month and day of week, a day that matches either is due, as in cron."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]  #: 0 is Sunday
    either_day: bool = False

    def on(self, day: date) -> bool:
        """Whether the schedule is due on this day. The time of day is not considered."""
        weekday = day.isoweekday() % 7 in self.weekdays
        monthday = day.day in self.days
        return day.month in self.months and (weekday or monthday if self.either_day else weekday and monthday)

    @property
    def every_hour(self) -> bool:
        return len(self.hours) == 24


def parse_schedule(text: str) -> CronSchedule:
    """Parse five fields (``*``, numbers, names, ranges, lists, steps), or a word such as @hourly. Raises InvalidSettings."""
    parts = _MACROS.get(text.strip().lower(), text).split()
    if len(parts) != len(_FIELDS):
        raise InvalidSettings(f"expected five fields (minute hour day month weekday) or a word such as @hourly, got {text!r}")
    minutes, hours, days, months, weekdays = (field.read(part) for field, part in zip(_FIELDS, parts, strict=True))
    schedule = CronSchedule(
        minutes=minutes,
        hours=hours,
        days=days,
        months=months,
        weekdays=frozenset(day % 7 for day in weekdays),
        either_day=not parts[2].startswith("*") and not parts[4].startswith("*"),
    )
    if not schedule.either_day and min(days) > max(_LONGEST_MONTH[month] for month in months):
        raise InvalidSettings(f"expected a day of month that exists in one of the given months, got {text!r}")
    return schedule


def with_sunday_as_0(text: str) -> str:
    """Return the same schedule with Sunday as 0, never as 7, and words in lower case, for a program that accepts only this.

    Raises InvalidSettings."""
    parse_schedule(text)
    *others, weekdays = text.lower().split()
    return " ".join([*others, weekdays if not others else ",".join(map(_sunday_as_0, weekdays.split(",")))])


def _sunday_as_0(part: str) -> str:
    days = _FIELDS[-1].read(part)
    if part.startswith("*") or 7 not in days:
        return part
    return ",".join(str(day) for day in sorted({day % 7 for day in days}))


def zone(name: str | None) -> ZoneInfo:
    """Return the time zone with this name; None means UTC. Raises InvalidSettings."""
    try:
        return ZoneInfo(name or "UTC")
    except (KeyError, ValueError, OSError) as exc:
        raise InvalidSettings(f"expected the name of a time zone such as Europe/Vienna, got {name!r}") from exc


def next_after(schedule: CronSchedule, moment: datetime, where: ZoneInfo) -> datetime:
    """Return the first time after ``moment`` at which the schedule is due, in UTC. Raises InvalidSettings if there is none."""
    found = next(moments_after(schedule, moment, where), None)
    if found is None:
        raise InvalidSettings(
            f"expected a schedule that is due within {_MAX_DAYS // 366} years, got no due time after {moment}"
        )
    return found


def moments_after(schedule: CronSchedule, moment: datetime, where: ZoneInfo) -> Iterator[datetime]:
    """Yield the times after ``moment`` at which the schedule is due, in UTC and in order.

    When clocks are set forward, a schedule for a time that does not exist is due at the next moment that exists. When clocks
    are set back, a schedule for a time that comes twice is due only the first time. A schedule for all 24 hours follows real
    time instead: it has no additional run when clocks are set forward, and is due in both of the equal hours when they are set
    back.
    """
    begin = moment.astimezone(where).replace(tzinfo=None, minute=0) - _LARGEST_CHANGE
    day, idle, waiting = begin.date(), 0, set[datetime]()
    while idle < _MAX_DAYS:
        idle += 1
        for hour in sorted(schedule.hours) if schedule.on(day) else (0,):
            edge = datetime.combine(day, time(hour), where).astimezone(UTC) - _LARGEST_CHANGE
            ready = sorted(each for each in waiting if each < edge)
            waiting.difference_update(ready)
            yield from ready
            if ready:  # where a whole day does not exist, its later hours lead to the same moment again
                moment, idle = ready[-1], 0
            if schedule.on(day) and datetime.combine(day, time(hour)) >= begin:
                waiting.update([each for each in _moments(schedule, day, hour, where) if each > moment])
        day += timedelta(days=1)


def _moments(schedule: CronSchedule, day: date, hour: int, where: ZoneInfo) -> Iterator[datetime]:
    """Yield every time within one hour of a day at which the schedule is due, in UTC."""
    for minute in schedule.minutes:
        first = datetime.combine(day, time(hour, minute), where)
        change = _change(first)
        if change >= timedelta():
            yield first.astimezone(UTC)
        elif not schedule.every_hour:
            yield _end_of_gap(first)
        if schedule.every_hour and change > timedelta():
            yield first.replace(fold=1).astimezone(UTC)


def _change(wall: datetime) -> timedelta:
    """Return how far clocks are set back at this time: positive if the time comes twice, negative if it does not exist."""
    first, second = wall.utcoffset(), wall.replace(fold=1).utcoffset()
    return timedelta() if first is None or second is None else first - second


def _end_of_gap(wall: datetime) -> datetime:
    """Return the moment at which clocks are set forward over ``wall``, a time that does not exist; in UTC, to the second."""
    before, after = wall.replace(fold=1).astimezone(UTC), wall.astimezone(UTC)
    old = before.astimezone(wall.tzinfo).utcoffset()
    while after - before > timedelta(seconds=1):
        middle = before + (after - before) // timedelta(seconds=2) * timedelta(seconds=1)
        if middle.astimezone(wall.tzinfo).utcoffset() == old:
            before = middle
        else:
            after = middle
    return after
