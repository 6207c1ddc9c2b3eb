"""drumbeat pool schedule: periodic jobs are added, shown with their next ticks, paused and removed; every mistake is named."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from cli.given import invoke, ran
from drumbeat.core.clock import SystemClock
from drumbeat.core.errors import AlreadyExists, InvalidInput, NotFound
from drumbeat.core.pool import PoolId
from drumbeat.pool.schedules.tick_pusher import TickPusher
from drumbeat.store import open_store
from drumbeat.store.interface import PoolChange

TASKS = """
import drumbeat

@drumbeat.task(pool="mail", cron="0 3 * * *", tz="Europe/Berlin", missed="skip")
def report(): ...

@drumbeat.task(pool="mail", every=3600)
def clean(): ...
"""


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/jobs.db"


def said(url: str, *arguments: str) -> str:
    return invoke("pool", "schedule", *arguments, store=url).output


def listed(url: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(said(url, "list", "mail", "--json"))
    return found


def test_a_schedule_is_added_shown_paused_resumed_and_removed(url: str) -> None:
    added = said(url, "add", "mail", "nightly", '{"a": 1}', "--cron", "0 3 * * *", "--tz", "Europe/Berlin", "--type", "report")

    assert "schedule nightly (0 3 * * * (Europe/Berlin)), missed ticks: once; next ticks (UTC): " in added
    assert added.count(":00:00") == 5
    assert "no process has looked after the schedules of mail yet" in added
    row = listed(url)[0]
    assert (row["name"], row["payload"], row["options"]) == ("nightly", {"a": 1}, {"type": "report"})
    assert len(row["next"]) == 5
    shown = said(url, "list", "mail")
    assert "0 3 * * * (Europe/Berlin)" in shown
    assert shown.count(":00:00") == 5
    assert "no process has looked after the schedules of mail yet" in shown
    assert "is paused" in said(url, "pause", "mail", "nightly")
    assert "resume it with: drumbeat pool schedule resume mail nightly" in said(url, "explain", "mail", "nightly")
    assert "is active" in said(url, "resume", "mail", "nightly")
    assert "removed schedule nightly of pool mail" in said(url, "rm", "mail", "nightly")
    assert "pool mail has no schedules" in said(url, "list", "mail")


def test_a_schedule_has_the_options_of_a_push(url: str) -> None:
    more = (
        "--every",
        "10m",
        "--missed",
        "all",
        "--priority",
        "3",
        "--max-attempts",
        "9",
        "--backoff",
        "5s",
        "--timeout",
        "90s",
    )
    said(url, "add", "mail", "s", *more, "--group", "g", "--group-rate", "10/1m", "--key", "k", "--delay", "5s")

    row = listed(url)[0]

    assert (row["every"], row["missed"], row["payload"]) == ("PT600S", "all", None)
    assert row["options"]["backoff"]["first"] == "PT5S"
    assert (row["options"]["timeout"], row["options"]["delay"]) == ("PT90S", "PT5S")
    assert (row["options"]["group_rate"], row["options"]["unique_key"]) == ({"count": 10, "per": "PT60S"}, "k")
    assert (row["options"]["priority"], row["options"]["max_attempts"]) == (3, 9)


def test_a_change_of_a_pools_settings_keeps_its_schedules_and_does_not_print_them(url: str) -> None:
    said(url, "add", "mail", "s", "--every", "10m")

    changed = invoke("pool", "create", "mail", "--update", "--max-workers", "3", store=url).output

    assert changed == "pool mail: max_workers 3\n"
    assert [row["name"] for row in listed(url)] == ["s"]


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        (("add", "mail", "x", "--cron", "0 0 31 2 *"), InvalidInput, "a day of month that exists"),
        (("add", "mail", "x"), InvalidInput, "expected either cron or every, got neither"),
        (("add", "mail", "x", "{", "--every", "5s"), InvalidInput, "expected the payload in JSON"),
        (("add", "mail", "x", "--every", "soon"), InvalidInput, "expected a duration such as 200ms"),
        (
            ("add", "mail", "x", "--every", "5s", "--group-limit", "2"),
            InvalidInput,
            "group_limit limits the jobs of a group: expected the option group too",
        ),
        (("add", "mail", "s", "--every", "5s"), AlreadyExists, "already has a schedule 's'; change it with --update"),
        (("add", "a/b", "s", "--every", "5s"), InvalidInput, "no / or"),
        (("pause", "mail", "other"), NotFound, "has no schedule 'other'; it has: s"),
        (("rm", "mail", "other"), NotFound, "has no schedule 'other'"),
        (("list", "nowhere"), NotFound, "there is no pool 'nowhere'"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(url: str, arguments: tuple[str, ...], error: type[Exception], says: str) -> None:
    said(url, "add", "mail", "s", "--every", "10m")

    with pytest.raises(error, match=says):
        said(url, *arguments)

    assert [row["name"] for row in listed(url)] == ["s"]


def test_a_worker_records_the_schedules_of_its_modules_tasks(tmp_path: Path, url: str) -> None:
    (tmp_path / "app_tasks.py").write_text(TASKS)

    done = ran("pool", "work", "app_tasks", "--drain", cwd=tmp_path, DRUMBEAT_STORE=url)

    assert done.code == 0, done.errors
    clean, report = listed(url)
    assert (clean["name"], clean["every"], clean["module"]) == ("app_tasks.clean", "PT3600S", "app_tasks")
    assert (report["cron"], report["tz"], report["missed"]) == ("0 3 * * *", "Europe/Berlin", "skip")
    assert report["options"] == {"type": "app_tasks.report"}


def test_a_list_names_each_schedule_whose_jobs_are_refused(url: str) -> None:
    for name in ("a", "b", "c"):
        said(url, "add", "mail", name, "--every", "1s")
    asyncio.run(refuse_the_jobs_of(url, "b", "c"))

    shown = " ".join(said(url, "list", "mail").split())

    assert shown.count("unknown option 'colour'") == 2
    assert "schedule b pushed no job at its last tick" in shown
    assert "no process" not in shown


async def refuse_the_jobs_of(url: str, *names: str) -> None:
    """Give schedules an option that does not exist, and let a process look after them when they are due."""
    async with open_store(url) as store:
        policy = (await store.pools.get(PoolId("mail"))).policy
        bad = {f"schedule/{name}": {**policy[f"schedule/{name}"], "options": {"colour": "red"}} for name in names}
        row = await store.pools.change(PoolId("mail"), PoolChange(policy=bad))
        await asyncio.sleep(1.1)
        await TickPusher(store, SystemClock(), "me").push_due(row)
