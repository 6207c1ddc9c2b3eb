"""Which ticks of a schedule get a job: each once, missed ones by policy, in every summer and winter."""

from datetime import datetime, timedelta
from itertools import islice, takewhile
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from drumbeat.core.errors import AlreadyExists, InvalidInput, NotFound, Refused
from drumbeat.core.pool import PoolId
from drumbeat.pool.schedules.model import DEFINITION, DueTicks, JobSchedule, MissedTicks, due_ticks, tick_job_id, tick_of
from drumbeat.store.interface import PoolChange
from drumbeat.store.memory import MemoryStore
from pool.schedules.given import DAY, HOUR, MAIL, MINUTE, Planned, at

START = at("2026-01-01 00:00")


def schedule(**fields: Any) -> JobSchedule:
    return JobSchedule(**{"name": "s", "since": START, "anchor": START, **fields})


def due(now: str, missed: str, last: str = "2026-01-01 00:00", **fields: Any) -> list[str]:
    found = due_ticks(schedule(missed=MissedTicks(missed), **fields), at(last), at(now))
    return [] if found is None else [f"{tick:%d %H:%M}" for tick in found.pushed]


@pytest.mark.parametrize(
    ("missed", "now", "expected"),
    [
        ("skip", "2026-01-01 00:59", []),
        ("skip", "2026-01-01 01:00", ["01 01:00"]),
        ("skip", "2026-01-01 01:05", ["01 01:00"]),
        ("skip", "2026-01-01 01:06", []),
        ("skip", "2026-01-01 05:01", ["01 05:00"]),
        ("once", "2026-01-01 01:59", ["01 01:00"]),
        ("once", "2026-01-03 12:30", ["03 12:00"]),
        ("all", "2026-01-01 03:30", ["01 01:00", "01 02:00", "01 03:00"]),
    ],
)
def test_missed_ticks_are_skipped_pushed_once_or_all_pushed(missed: str, now: str, expected: list[str]) -> None:
    assert due(now, missed, cron="0 * * * *") == expected
    assert due(now, missed, every=HOUR) == expected


@pytest.mark.parametrize("fields", [{"cron": "* * * * *"}, {"every": MINUTE}, {"every": timedelta(seconds=7)}])
def test_of_many_missed_ticks_only_the_newest_hundred_are_pushed(fields: dict[str, Any]) -> None:
    found = due_ticks(schedule(missed=MissedTicks.ALL, **fields), START, at("2027-03-01 00:00"))

    assert isinstance(found, DueTicks)
    assert len(found.pushed) == 100
    assert found.dropped
    assert found.pushed[-1] == found.last
    assert at("2027-03-01 00:00") - found.last <= MINUTE


@settings(max_examples=30)
@given(
    st.sampled_from(["*/20 * * * *", "*/7 3 * * *", "30 2 * * *", "0 12 * * mon", "15 */5 1,15 * *"]),
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"]),
    st.datetimes(datetime(2026, 1, 2), datetime(2027, 1, 2)),  # noqa: DTZ001
    st.lists(st.integers(1, 1500), min_size=1, max_size=5),
)
def test_whenever_one_looks_every_tick_comes_exactly_once(cron: str, tz: str, begin: datetime, steps: list[int]) -> None:
    plan, first = schedule(cron=cron, tz=tz, missed=MissedTicks.ALL), begin.replace(tzinfo=START.tzinfo)
    moment, last, pushed = first, first, list[datetime]()
    for minutes in steps:
        moment += timedelta(minutes=minutes)
        found = due_ticks(plan, last, moment)
        if found is not None:
            pushed += found.pushed
            last = found.last

    assert pushed == list(takewhile(lambda tick: tick <= moment, plan.ticks_after(first)))


@pytest.mark.parametrize(
    ("cron", "begin", "expected"),
    [
        ("30 2 * * *", "2026-03-28 12:00", ["03-29 01:00", "03-30 00:30"]),
        ("30 2 * * *", "2026-10-24 12:00", ["10-25 00:30", "10-26 01:30"]),
        ("0 3 * * *", "2026-03-28 12:00", ["03-29 01:00", "03-30 01:00"]),
    ],
    ids=["a time that does not exist", "a time that comes twice", "a time after the change"],
)
def test_summer_time_moves_no_tick_away_and_doubles_none(cron: str, begin: str, expected: list[str]) -> None:
    found = islice(schedule(cron=cron, tz="Europe/Berlin").ticks_after(at(begin)), 2)

    assert [f"{tick:%m-%d %H:%M}" for tick in found] == expected


def test_an_interval_does_not_change_with_summer_time() -> None:
    plan = schedule(every=DAY, anchor=at("2026-03-27 02:30"))

    found = list(islice(plan.ticks_after(at("2026-03-28 00:00")), 3))

    assert [tick - at("2026-03-28 02:30") for tick in found] == [0 * DAY, 1 * DAY, 2 * DAY]


@pytest.mark.parametrize("tick", ["2026-01-01 03:00:00", "2026-01-01 03:00:07.250000"])
def test_the_id_of_a_job_tells_its_schedule_and_its_tick(tick: str) -> None:
    job_id = tick_job_id(PoolId("a@b"), "nightly", at(tick))

    assert tick_of(job_id, PoolId("a@b")) == ("nightly", at(tick))
    assert tick_of(job_id, PoolId("b")) is None
    assert tick_of("17", PoolId("a@b")) is None
    assert tick_of("x@y@a@b", PoolId("a@b")) is None


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"cron": "0 0 31 2 *"}, "schedule s: expected a day of month that exists in one of the given months"),
        ({"cron": "0 0 30 feb *"}, "a day of month that exists"),
        ({"cron": "61 * * * *"}, "minute: expected 0 to 59, got '61'"),
        ({"cron": "0 3 * * *", "tz": "Mars/Base"}, "the name of a time zone such as Europe/Vienna, got 'Mars/Base'"),
        ({"cron": 5}, "cron: expected text, got 5"),
        ({}, "expected either cron or every, got neither"),
        ({"cron": "@daily", "every": 5}, "expected either cron or every, got both"),
        ({"every": 5, "tz": "UTC"}, "expected tz only with cron"),
        ({"every": 0.1}, "expected every to be 1 s to a hundred years"),
        ({"every": "often"}, "every: expected a timedelta or seconds"),
        ({"every": 5, "missed": "some"}, "expected missed to be one of skip, once, all, got 'some'"),
        ({"every": 5, "job_id": "x"}, "expected no job_id: a schedule gives each job its own"),
        ({"every": 5, "priority": "high"}, "expected priority to be a whole number"),
        ({"every": 5, "colour": "red"}, "unknown option 'colour'"),
        ({"every": 5, "payload": object()}, "payload"),
        ({"every": 5, "payload": "x" * 70_000}, "65,536 bytes|65536"),
    ],
)
async def test_a_schedule_that_cannot_be_is_refused_and_creates_no_pool(
    store: MemoryStore, fields: dict[str, Any], says: str
) -> None:
    plan = Planned(store)

    with pytest.raises(InvalidInput, match=says):
        await plan.schedules.add("s", **fields)

    assert await plan.store.pools.list() == []


@pytest.mark.parametrize("name", ["", " a", "a/b", "a@b", "a\\b", "x" * 201, "a\nb", 7])
async def test_a_name_that_could_be_mistaken_is_refused(store: MemoryStore, name: Any) -> None:
    with pytest.raises(InvalidInput, match="expected the name of a schedule"):
        await Planned(store).schedules.add(name, every=60)


async def test_a_name_can_be_used_once_and_changed_on_request(store: MemoryStore) -> None:
    plan = Planned(store)
    await plan.schedules.add("s", every=60)

    with pytest.raises(AlreadyExists, match="'mail' already has a schedule 's'; change it with --update"):
        await plan.schedules.add("s", every=70)
    await plan.schedules.add("s", every=70, exist_ok=True)

    assert (await plan.schedules.get("s")).schedule.every == timedelta(seconds=70)
    with pytest.raises(NotFound, match="has no schedule 'other'; it has: s"):
        await plan.schedules.pause("other")


async def test_a_pool_has_so_many_schedules_at_most(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drumbeat.pool.schedules.service.MOST_SCHEDULES", 2)
    plan = Planned(store)
    await plan.schedules.add("a", every=60)
    await plan.schedules.add("b", every=60)

    with pytest.raises(Refused, match="has 2 schedules, the most that a pool can have"):
        await plan.schedules.add("c", every=60)


async def test_the_options_of_a_schedule_are_those_of_its_jobs(store: MemoryStore) -> None:
    plan = Planned(store)
    options: dict[str, Any] = {
        "type": "report",
        "priority": 5,
        "max_attempts": 7,
        "timeout": 90,
        "group": "g",
        "group_limit": 2,
    }
    more: dict[str, Any] = {
        "backoff": {"first": 10},
        "group_rate": {"count": 1, "per": 60},
        "unique_key": "k",
        "capability": "gpu",
    }
    await plan.schedules.add("s", {"a": [1]}, every=HOUR, **options, **more)

    plan.go_to("2026-01-01 01:00")
    await plan.look()

    job = (await plan.jobs())[0]
    assert (job.payload, job.type, job.priority, job.max_attempts) == ({"a": [1]}, "report", 5, 7)
    assert (job.timeout, job.backoff.first) == (timedelta(seconds=90), timedelta(seconds=10))
    assert (job.group, job.group_limit, job.unique_key, job.capability) == ("g", 2, "k", "gpu")
    assert job.group_rate is not None
    assert job.pool_id == MAIL


async def test_a_stored_option_without_effect_keeps_no_tick_from_being_pushed(store: MemoryStore) -> None:
    plan = Planned(store)
    await plan.schedules.add("s", 1, every=HOUR, priority=5)
    stored = (await store.pools.get(MAIL)).policy[DEFINITION + "s"]
    old = {**stored, "options": {**stored["options"], "group_limit": 2}}
    await store.pools.change(MAIL, PoolChange(policy={DEFINITION + "s": old}))

    plan.go_to("2026-01-01 01:00")
    await plan.look()

    assert [(job.priority, job.group_limit) for job in await plan.jobs()] == [(5, None)]


async def test_an_edit_counts_from_now_on(store: MemoryStore) -> None:
    plan = Planned(store)
    await plan.schedules.add("s", cron="0 * * * *", missed="all")
    assert await plan.look_at("2026-01-01 01:00") == ["01T0100"]

    plan.go_to("2026-01-01 04:10")
    await plan.schedules.add("s", cron="30 * * * *", missed="all", exist_ok=True)

    assert await plan.look_at("2026-01-01 04:29") == ["01T0100"]
    assert await plan.look_at("2026-01-01 05:40") == ["01T0100", "01T0430", "01T0530"]


async def test_the_same_schedule_again_changes_nothing(store: MemoryStore) -> None:
    plan = Planned(store)
    await plan.schedules.add("s", every=HOUR)

    plan.go_to("2026-01-01 00:40")
    await plan.schedules.add("s", every=HOUR, exist_ok=True)

    assert await plan.look_at("2026-01-01 01:00") == ["01T0100"]


@pytest.mark.parametrize(("missed", "expected"), [("skip", []), ("once", ["01T0300"]), ("all", ["01T0200", "01T0300"])])
async def test_a_paused_schedule_pushes_nothing_and_then_catches_up_by_policy(
    store: MemoryStore, missed: str, expected: list[str]
) -> None:
    plan = Planned(store)
    await plan.schedules.add("s", cron="0 * * * *", missed=missed)
    assert await plan.look_at("2026-01-01 01:00") == ["01T0100"]
    await plan.schedules.pause("s")

    assert await plan.look_at("2026-01-01 03:01") == ["01T0100"]
    await plan.schedules.resume("s")

    assert await plan.look_at("2026-01-01 03:02") == ["01T0100", *expected]
    assert await plan.look_at("2026-01-01 04:00") == ["01T0100", *expected, "01T0400"]


async def test_a_removed_schedule_pushes_no_more_and_leaves_nothing_behind(store: MemoryStore) -> None:
    plan = Planned(store)
    await plan.schedules.add("s", cron="0 * * * *")
    assert await plan.look_at("2026-01-01 01:00") == ["01T0100"]

    await plan.schedules.remove("s")

    assert await plan.look_at("2026-01-01 02:00") == ["01T0100"]
    assert (await plan.pool.get()).policy == {}
