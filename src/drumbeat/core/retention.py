"""Retention: how long finished jobs, ended workers and old records are kept before they are deleted."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from enum import StrEnum

from drumbeat.core.errors import InvalidSettings
from drumbeat.core.pool import PoolRow

IN_POLICY = "retention"  #: key in a pool's policy for the retention of this pool
_AGE = re.compile(r"([0-9]{1,6})([mhdw])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class Prunable(StrEnum):
    """The kinds of old rows that retention can delete from a pool."""

    DONE = "done"  #: done jobs
    CANCELLED = "cancelled"  #: cancelled jobs
    POISONED = "poisoned"  #: poisoned jobs
    WORKERS = "workers"  #: ended workers; in a fleet, not those that may still cost money or count for the current month
    SAMPLES = "samples"
    BEATS = "beats"  #: except the last beat, and the last beat that observed its pool
    LOGS = "logs"
    EVENTS = "events"  #: events of ended runs; in other pools, those about single workers


JOBS = (Prunable.DONE, Prunable.CANCELLED, Prunable.POISONED)
RECORDS = (Prunable.SAMPLES, Prunable.LOGS, Prunable.BEATS, Prunable.WORKERS, Prunable.EVENTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """The result of one short step that deleted old rows."""

    rows: int
    more: bool  #: whether another step may find more rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long a pool of jobs or a fleet keeps old rows of each kind; None: forever."""

    jobs: timedelta | None = timedelta(days=7)  #: done and cancelled jobs; parents of a poisoned job stay as long as it does
    poisoned: timedelta | None = timedelta(days=30)  #: poisoned jobs; longer, so that they can be examined or requeued
    workers: timedelta | None = timedelta(days=7)  #: ended workers, and the events about single workers
    samples: timedelta | None = timedelta(days=7)
    beats: timedelta | None = timedelta(days=7)
    logs: timedelta | None = timedelta(days=7)

    def ages(self) -> Iterator[tuple[Prunable, timedelta]]:
        """Yield each kind of row with the age at which it is deleted; kinds kept forever are left out."""
        found = {
            Prunable.DONE: self.jobs,
            Prunable.CANCELLED: self.jobs,
            Prunable.POISONED: self.poisoned,
            Prunable.WORKERS: self.workers,
            Prunable.EVENTS: self.workers,
            Prunable.SAMPLES: self.samples,
            Prunable.BEATS: self.beats,
            Prunable.LOGS: self.logs,
        }
        return ((what, age) for what, age in found.items() if age is not None)


USUAL = Retention()
FOR_EVER = Retention(jobs=None, poisoned=None, workers=None, samples=None, beats=None, logs=None)


def read_retention(text: str, base: Retention | None = None) -> Retention:
    """Parse text such as ``jobs=30d,logs=12h,poisoned=never``. Ages that the text does not name come from ``base``, by default
    ``USUAL``. The text ``off`` means that nothing is ever deleted.

    Raises InvalidSettings.
    """
    if text.strip() == "off":
        return FOR_EVER
    known = [each.name for each in fields(Retention)]
    given: dict[str, timedelta | None] = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, _, age = (each.strip() for each in part.partition("="))
        if name not in known:
            raise InvalidSettings(
                f"retention: expected 'off' or NAME=AGE such as jobs=7d (names: {', '.join(known)}), got {part!r}"
            )
        given[name] = None if age == "never" else _parse_age(part, age)
    return replace(base or USUAL, **given)


def write_retention(retention: Retention) -> str:
    """Return the text that ``read_retention`` parses to the same retention."""
    if retention == FOR_EVER:
        return "off"
    return ",".join(f"{each.name}={_age_text(getattr(retention, each.name))}" for each in fields(Retention))


def retention_of(pool: PoolRow, usual: Retention) -> Retention:
    """Return the retention of a pool: from its policy, or else ``usual``. Raises InvalidSettings."""
    own = pool.policy.get(IN_POLICY)
    if own is None:
        return usual
    if not isinstance(own, str):
        raise InvalidSettings(f"pool {pool.pool_id}, retention: expected text such as jobs=7d,logs=1d, got {own!r}")
    return read_retention(own, usual)


def _age_text(age: timedelta | None) -> str:
    """Format an age in the largest unit that divides it, such as 7d; ``never`` for None."""
    if age is None:
        return "never"
    found = next((unit for unit in reversed(_UNITS) if not age % timedelta(**{_UNITS[unit]: 1})), "m")
    return f"{age // timedelta(**{_UNITS[found]: 1})}{found}"


def _parse_age(part: str, text: str) -> timedelta:
    found = _AGE.fullmatch(text)
    if found is None:
        raise InvalidSettings(f"retention: expected an age such as 90m, 12h, 7d or 4w, or the word 'never', got {part!r}")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})
