"""Periodic tasks: the options cron and every become a schedule of the task's pool, and stay one while the code says so."""

from datetime import timedelta
from typing import Any

import pytest

import drumbeat
from drumbeat.core.errors import InvalidInput
from drumbeat.core.pool import PoolId
from drumbeat.pool.schedules.service import Schedules
from drumbeat.store.memory import MemoryStore
from drumbeat.tasks.periodic import record_schedules
from pool.schedules.given import Planned


@drumbeat.task(pool="mail", cron="0 3 * * *", tz="Europe/Berlin", missed="all", max_attempts=5, unique=True, name="report")
def report(month: int = 0) -> int:
    return month


@drumbeat.task(pool="mail", every=timedelta(hours=1), name="clean")
async def clean() -> None: ...


@drumbeat.task(pool="mail", name="send")
def send(to: str) -> str:
    return to


async def recorded(schedules: Schedules, *tasks: Any) -> None:
    await record_schedules(schedules, tasks, "app.tasks")


async def test_the_schedules_of_tasks_are_recorded_with_their_options(store: MemoryStore) -> None:
    plan = Planned(store)

    await recorded(plan.schedules, report, clean, send)

    first, second = await plan.schedules.list()
    assert (first.name, first.schedule.every, first.schedule.module) == ("clean", timedelta(hours=1), "app.tasks")
    assert (second.schedule.cron, second.schedule.tz, second.schedule.missed) == ("0 3 * * *", "Europe/Berlin", "all")
    assert await plan.look_at("2026-01-01 01:00") == ["01T0100"]
    job = (await plan.jobs())[0]
    assert (job.type, job.payload) == ("clean", {"args": [], "kwargs": {}})
    assert await plan.look_at("2026-01-01 02:00") == ["01T0100", "01T0200", "01T0200"]
    job = next(each for each in await plan.jobs() if each.type == "report")
    assert (job.max_attempts, job.pool_id) == (5, PoolId("mail"))
    assert str(job.unique_key).startswith("report:")


async def test_a_worker_that_starts_again_changes_no_schedule_that_is_the_same(store: MemoryStore) -> None:
    plan = Planned(store)
    await recorded(plan.schedules, clean, report)
    await plan.schedules.pause("report")
    before = (await plan.pool.get()).policy

    plan.go_to("2026-01-01 00:40")
    await recorded(plan.schedules, clean, report)

    assert (await plan.pool.get()).policy == before
    assert await plan.look_at("2026-01-01 01:00") == ["01T0100"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"cron": "0 0 31 2 *"}, "expected a day of month that exists"),
        ({"cron": "0 3 * * *", "tz": "Mars"}, "the name of a time zone"),
        ({"cron": "0 3 * * *", "every": 5}, "expected either cron or every, got both"),
        ({"tz": "UTC"}, "expected either cron or every, got neither"),
        ({"every": timedelta()}, "expected every to be 1 s to a hundred years"),
        ({"every": 5, "missed": "some"}, "expected missed to be one of skip, once, all"),
        ({"cron": 3}, "cron: expected text"),
    ],
)
def test_a_task_that_is_never_due_is_refused_where_it_is_written(options: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInput, match=f"task never: .*{says}"):
        drumbeat.task(name="never", **options)(lambda: None)


def test_a_periodic_task_has_no_parameter_without_a_default() -> None:
    with pytest.raises(InvalidInput, match=r"a periodic task is called without arguments; give each parameter a default: .*to"):

        @drumbeat.task(every=60)
        def mail(to: str) -> None: ...


def test_a_periodic_task_is_called_and_pushed_as_any_other() -> None:
    assert report(3) == 3
    assert report.with_options(priority=5).timing == report.timing
