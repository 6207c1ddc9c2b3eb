"""Periodic tasks: the options ``cron`` and ``every`` of a task, and the schedules that are recorded for them in a pool."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from drumbeat.core.errors import InvalidInput
from drumbeat.core.job import NewJob
from drumbeat.pool.schedules.model import JobSchedule, MissedTicks, check_schedule, read_missed
from drumbeat.pool.schedules.service import Schedules
from drumbeat.pool.validation import check_duration, check_text

_OPTIONS = ("cron", "every", "tz", "missed")
_SOME_TIME = datetime(2026, 1, 1, tzinfo=UTC)
_DEFAULTS = NewJob(payload=None)
_NOT_OPTIONS = ("payload", "job_id", "run_at")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTiming:
    """When a periodic task is due: the options of its schedule."""

    cron: str | None = None
    every: timedelta | None = None
    tz: str | None = None
    missed: MissedTicks = MissedTicks.ONCE


class PeriodicTask(Protocol):
    """The parts of a task that its schedule needs."""

    @property
    def task_name(self) -> str: ...
    @property
    def timing(self) -> TaskTiming | None: ...
    def scheduled_job(self) -> NewJob:
        """Return the job that the task's schedule pushes."""
        ...


def read_timing(name: str, options: Mapping[str, Any]) -> TaskTiming | None:
    """Return when a task is due by its options; None if it is not periodic. Raises InvalidInput."""
    given = {option: options[option] for option in _OPTIONS if options.get(option) is not None}
    if not given:
        return None
    try:
        timing = _timing(given)
        check_schedule(
            JobSchedule(name=name, cron=timing.cron, every=timing.every, tz=timing.tz, since=_SOME_TIME, anchor=_SOME_TIME)
        )
    except InvalidInput as exc:
        raise InvalidInput(f"task {name}: {str(exc).removeprefix(f'schedule {name}: ')}") from exc
    return timing


def _timing(given: Mapping[str, Any]) -> TaskTiming:
    every = None if "every" not in given else check_duration("every", given["every"])
    cron, tz = (check_text(option, given[option]) if option in given else None for option in ("cron", "tz"))
    return TaskTiming(cron=cron, every=every, tz=tz, missed=read_missed(given.get("missed", MissedTicks.ONCE)))


async def record_schedules(schedules: Schedules, tasks: Iterable[PeriodicTask], module: str, file: str | None = None) -> None:
    """Record in a pool the schedule of each periodic task of ``tasks``. Schedules that have not changed stay as they are.
    ``module`` defines the tasks, in ``file``."""
    for task in tasks:
        if task.timing is None:
            continue
        job, timing = task.scheduled_job(), task.timing
        options = {field.name: getattr(job, field.name) for field in fields(NewJob) if field.name not in _NOT_OPTIONS}
        changed = {name: value for name, value in options.items() if value != getattr(_DEFAULTS, name)}
        when: dict[str, Any] = {"cron": timing.cron, "every": timing.every, "tz": timing.tz, "missed": timing.missed}
        await schedules.add(task.task_name, job.payload, exist_ok=True, module=module, file=file, **when, **changed)
