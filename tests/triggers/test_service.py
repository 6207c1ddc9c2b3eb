"""A file of triggers at work, on a real store: pulled, checked, installed, kept."""

import asyncio
import json
import os
import urllib.request
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import pytest
import yaml

from drumbeat.composition.plane import ControlPlane, open_control_plane
from drumbeat.core.errors import DrumbeatError, InvalidSettings, NotFound
from drumbeat.core.pool import PoolId, PoolKind, pool
from drumbeat.settings import Settings, load_settings, public_url
from drumbeat.triggers.crontab import CronPlace
from drumbeat.triggers.model import BeatKind, Firing
from drumbeat.triggers.webhook import SIGNATURE, TIMESTAMP, sign
from e2e.processes import eventually
from triggers.given import SECRET

FILE = """
triggers:
  - {name: often, type: cron, schedule: "*/5 * * * *", input: {pool_id: papers, max_workers: 0}}
  - {name: nightly, type: cron, schedule: "@daily", machine: stale_worker_reaper, input: {stale_threshold_seconds: 90}}
  - {name: hook, type: webhook, secret_variable: HOOK, input: {max_workers: 0}}
  - {name: push, type: subprocess}
  - {name: beside, type: in-loop, input: {pool_id: papers, max_workers: 0}}
  - {name: cloud, type: serverless}
"""


@pytest.fixture
async def plane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ControlPlane]:
    """A store with the pool papers and two jobs in it, and the file in the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "triggers.yml").write_text(FILE)
    settings = Settings(store=f"sqlite:///{tmp_path}/d.db", state_dir=tmp_path / "state")
    async with open_control_plane(settings, create=True) as plane:
        await plane.pool("papers").push_many([{}, {}])
        yield plane


async def test_every_machine_can_be_pulled(plane: ControlPlane) -> None:
    desk = plane.triggers()

    checked, reaped = await desk.fire("often"), await desk.fire("nightly")

    assert checked["papers"]["why_not"] == "2 jobs ready, but 0 of at most 0 workers are here"
    assert reaped["papers"]["why_not"] == "0 live workers, all healthy; no ended worker holds a job"


async def test_a_process_that_keeps_triggers_fires_one_for_jobs_that_came_due(plane: ControlPlane) -> None:
    desk = plane.triggers()
    await plane.pool("other").push(1, delay=3600)

    async def fired() -> bool:
        return "often" in await desk.last_fired()

    async with asyncio.TaskGroup() as group:
        keeping = group.create_task(desk.keep())
        await eventually(fired, "the trigger of the pool whose jobs are due is fired")
        keeping.cancel()

    assert {*await desk.last_fired()} == {"often"}


async def test_when_each_last_fired_is_known_whoever_pulled_it(plane: ControlPlane) -> None:
    desk = plane.triggers()
    await desk.fire("often")
    await plane.fire(desk.get("nightly").firing())
    await plane.answer_event({"trigger": "cloud", "pool_id": "papers", "max_workers": 0})

    found = await plane.triggers().last_fired()

    assert set(found) == {"often", "nightly", "cloud"}
    assert found["often"].outcome == "papers: 2 jobs ready, but 0 of at most 0 workers are here"
    assert all(each.ok for each in found.values())


@pytest.mark.parametrize("machine", [BeatKind.CHECKER, BeatKind.REAPER])
async def test_a_pool_whose_engine_is_not_known_here_keeps_no_other_from_its_beat(
    plane: ControlPlane, machine: BeatKind
) -> None:
    await plane.store.pools.create(pool("a", PoolKind.JOBS, provider="nowhere"))

    reports = await plane.fired(Firing(trigger="t", machine=machine, max_workers=0 if machine is BeatKind.CHECKER else None))

    assert {name: (report["led"], report["ok"]) for name, report in reports.items()} == {
        "a": (False, False),
        "papers": (True, True),
    }
    assert "nowhere" in reports["a"]["error"]
    assert reports["a"].keys() == reports["papers"].keys()
    assert not (await plane.triggers().last_fired())["t"].ok
    with pytest.raises(InvalidSettings, match="nowhere"):
        await plane.fired(Firing(trigger="t", machine=machine, pool_id="a"))


async def test_a_check_by_hand_is_no_triggers_firing(plane: ControlPlane) -> None:
    await plane.run_trigger(plane.triggers().get("often").firing())

    assert await plane.store.beats.last(PoolId("papers")) is not None
    assert await plane.triggers().last_fired() == {}


async def test_a_trigger_that_is_not_there_is_named(plane: ControlPlane) -> None:
    with pytest.raises(NotFound, match=r"no trigger 'oftn' in .*; the file has: often, nightly, hook"):
        await plane.triggers().fire("oftn")


async def test_what_would_keep_it_from_working_is_found(plane: ControlPlane, tmp_path: Path) -> None:
    (tmp_path / "triggers.yml").write_text(FILE.replace("pool_id: papers", "pool_id: paper"))

    problems = await plane.triggers().problems()

    assert len(problems) == 3
    assert "trigger often: input.pool_id: there is no pool 'paper'" in problems
    assert any("environment variable HOOK, got none" in problem for problem in problems)


async def test_work_added_pulls_those_who_wait_for_it(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[str, ...]] = []
    monkeypatch.setattr("drumbeat.triggers.detached.start_detached", lambda command, *_: sent.append(tuple(command)))

    assert await plane.work_added(PoolId("papers")) == ["push"]
    assert await plane.work_added(PoolId("papers")) == []

    assert [json.loads(command[-1])["pool_id"] for command in sent] == ["papers"]


async def test_a_push_pulls_the_beat_of_fleets_only_for_a_fleet(
    plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[str, ...]] = []
    monkeypatch.setattr("drumbeat.triggers.detached.start_detached", lambda command, *_: sent.append(tuple(command)))
    (tmp_path / "triggers.yml").write_text(
        "triggers:\n"
        "  - {name: apart, type: subprocess, machine: fleet_beat}\n"
        "  - {name: beside, type: in-loop, machine: fleet_beat}\n"
        "  - {name: named, type: subprocess, machine: fleet_beat, input: {pool_id: papers}}\n"
    )
    await plane.fleets.configure("fleet", {"policy": "lag_aware", "min_workers": "0"})

    async with plane.waking() as work_added:
        fired = {name: [*await work_added(name)] for name in ("papers", "fleet", "gone")}

    assert fired == {"papers": ["named"], "fleet": ["apart", "beside"], "gone": []}
    assert [json.loads(command[-1])["pool_id"] for command in sent] == ["papers", "fleet"]


async def test_work_added_in_a_loop_is_checked_beside_the_caller(plane: ControlPlane, tmp_path: Path) -> None:
    (tmp_path / "triggers.yml").write_text(FILE.replace("{name: push, type: subprocess}", "{name: push, type: in-loop}"))

    async with plane.waking() as work_added:
        assert await work_added("papers") == ["push", "beside"]

    beat = await plane.store.beats.last(PoolId("papers"))
    assert beat is not None
    assert beat.n == 2
    assert beat.summary["ready"] == 2


async def test_without_a_file_work_added_is_nobodys_business(plane: ControlPlane, tmp_path: Path) -> None:
    (tmp_path / "triggers.yml").unlink()

    assert await plane.work_added(PoolId("papers")) == ()


async def test_the_seeds_name_for_the_file_is_known(plane: ControlPlane, tmp_path: Path) -> None:
    (tmp_path / "triggers.yml").rename(tmp_path / "trigger_registry.yml")

    assert len(plane.triggers().triggers) == 6


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("often", ["drumbeat", "pool", "check", "papers", "--wait", "--max-workers", "0"]),
        ("nightly", ["drumbeat", "pool", "reap", "--lost-after", "90s"]),
    ],
)
async def test_a_manifest_is_yaml_that_runs_the_same_beat(plane: ControlPlane, name: str, command: list[str]) -> None:
    made = yaml.safe_load(plane.triggers().manifest(name, "drumbeat:1", "stores"))

    assert made["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]["command"] == command


async def test_a_manifest_passes_on_every_input_of_a_fleets_beat_or_says_what_to_do(
    plane: ControlPlane, tmp_path: Path
) -> None:
    beat = "{name: NAME, type: cron, schedule: '@daily', machine: fleet_beat, input: {pool_id: my gpus MORE}}"
    plain, capped = (beat.replace("NAME", name).replace("MORE", more) for name, more in (("a", ""), ("b", ", max_workers: 3")))
    (tmp_path / "triggers.yml").write_text(f"triggers:\n  - {plain}\n  - {capped}\n")

    made = yaml.safe_load(plane.triggers().manifest("a", "drumbeat:1", "stores"))

    container = made["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]
    assert container["command"] == ["drumbeat", "fleet", "beat", "my gpus"]
    with pytest.raises(InvalidSettings, match="drumbeat fleet create 'my gpus' --set max_workers=3"):
        plane.triggers().manifest("b", "drumbeat:1", "stores")


@pytest.mark.parametrize(("name", "other"), [("reap.b", "Reap_b"), ("x" * 50 + "a", "x" * 50 + "b")])
async def test_two_triggers_never_share_the_name_of_a_cron_job(
    plane: ControlPlane, tmp_path: Path, name: str, other: str
) -> None:
    entry = "  - {name: NAME, type: cron, schedule: '@daily', machine: stale_worker_reaper}\n"
    (tmp_path / "triggers.yml").write_text("triggers:\n" + "".join(entry.replace("NAME", each) for each in (name, other, "c")))

    for each in (name, other):
        with pytest.raises(InvalidSettings, match="CronJobs have different names, got 'drumbeat-"):
            plane.triggers().manifest(each, "drumbeat:1", "stores")

    assert "name: drumbeat-c" in plane.triggers().manifest("c", "drumbeat:1", "stores")


async def test_a_schedule_and_a_webhook_are_kept_until_told_to_stop(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK", SECRET)
    stop, where = asyncio.Event(), asyncio.get_running_loop().create_future()
    body, stamp = b'{"pool_id": "papers"}', int(plane.clock.now().timestamp())
    headers = {TIMESTAMP: str(stamp), SIGNATURE: sign(SECRET, stamp, body)}

    def post(address: str) -> object:
        request = urllib.request.Request(f"{address}/triggers/hook", body, headers, method="POST")
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    async with asyncio.TaskGroup() as group:
        group.create_task(plane.triggers().serve("127.0.0.1", 0, where.set_result, stop))
        answers = [await asyncio.to_thread(post, await where) for _ in range(2)]
        stop.set()

    first, second = answers
    assert isinstance(first, dict)
    assert first["beats"]["papers"]["summary"]["ready"] == 2
    assert second == {"trigger": "hook", "repeated": True}


async def test_without_its_secret_nothing_is_served(plane: ControlPlane) -> None:
    with pytest.raises(InvalidSettings, match="HOOK, got none"):
        await plane.triggers().serve("127.0.0.1", 0, lambda _: None, asyncio.Event())


async def test_a_clouds_event_that_needs_no_webhook_needs_no_secret(plane: ControlPlane) -> None:
    answer = await plane.answer_event({"detail": {"pool_id": "papers", "max_workers": 0}})

    assert answer["beats"]["papers"]["led"] is True


async def test_a_clouds_event_needs_no_file_unless_it_is_http(plane: ControlPlane, tmp_path: Path) -> None:
    (tmp_path / "triggers.yml").unlink()

    answer = await plane.answer_event({"detail": {"pool_id": "papers", "max_workers": 0}})

    assert answer["beats"]["papers"]["led"] is True


@pytest.mark.parametrize(
    ("url", "public"),
    [
        ("sqlite:////var/d.db", True),
        ("postgresql://me@db/drumbeat", True),
        ("postgresql://me:hush@db/drumbeat", False),
        ("postgresql://me@db/drumbeat?password=hush", False),
        ("postgresql://me@db/drumbeat?PASSWD=hush", False),
        ("postgresql://me@db/drumbeat?sslsecret=hush", False),
        ("snowflake://me@account/db?token=hush", False),
        ("redis://:hush@cache/0", False),
    ],
)
async def test_no_password_gets_into_a_crontab(
    plane: ControlPlane, url: str, public: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    there = ControlPlane(Settings(store=url, state_dir=tmp_path), plane.store, plane.clock)

    with pytest.raises(Exception, match="the command crontab" if public else "must not appear in a crontab"):
        await there.triggers().install()

    assert (public_url(url) == url) is public


@pytest.mark.parametrize(
    ("toml", "installs"),
    [
        ("", False),
        ('state_dir = "state"', False),
        ('store = "postgresql://me:hush@elsewhere/drumbeat"', False),
        ('store = "postgresql://me:hush@db/drumbeat"', True),
    ],
)
async def test_a_store_with_a_password_must_be_in_the_settings_file_itself(
    plane: ControlPlane, toml: str, installs: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "drumbeat.toml").write_text(toml)
    settings = load_settings({"DRUMBEAT_STORE": "postgresql://me:hush@db/drumbeat"})
    there = ControlPlane(settings, plane.store, plane.clock)

    with pytest.raises(DrumbeatError, match="the command crontab" if installs else 'write store = "URL", with the password'):
        await there.triggers().install()


async def test_a_password_in_a_variable_is_not_lost_without_a_word(plane: ControlPlane) -> None:
    settings = load_settings({"DRUMBEAT_STORE": "redis://cache/0", "DRUMBEAT_STORE_PASSWORD": "hush"})

    with pytest.raises(InvalidSettings, match=r"password is in DRUMBEAT_STORE_PASSWORD.* unset DRUMBEAT_STORE and"):
        await ControlPlane(settings, plane.store, plane.clock).triggers().install()


@pytest.mark.parametrize(
    ("url", "installs"),
    [
        ("postgresql://me@db/app", False),
        ("postgres://db/app", False),
        ("postgresql://me@db/app?application_name=beat", False),
        ("redis://db/0", True),
        ("sqlite:///x.db", True),
    ],
)
@pytest.mark.parametrize("in_file", [True, False])
async def test_a_password_of_postgres_that_is_only_in_the_shell_is_not_lost(
    plane: ControlPlane, url: str, installs: bool, in_file: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PGPASSWORD", "hush")
    (tmp_path / "drumbeat.toml").write_text(f'store = "{url}"' if in_file else "")
    there = ControlPlane(load_settings({} if in_file else {"DRUMBEAT_STORE": url}), plane.store, plane.clock)

    said = (
        "the command crontab" if installs else r"PGPASSWORD, which cron does not have .* ~/.pgpass .* and unset PGPASSWORD; or "
    )
    with pytest.raises(DrumbeatError, match=said) as refused:
        await there.triggers().install()
    assert "hush" not in str(refused.value)

    monkeypatch.delenv("PGPASSWORD")
    with pytest.raises(DrumbeatError, match="the command crontab"):
        await there.triggers().install()


async def test_an_option_that_may_be_a_secret_is_no_password(
    plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", "hush")
    (tmp_path / "drumbeat.toml").write_text('store = "postgresql://me@db/app?sslkey=/key"')

    with pytest.raises(InvalidSettings, match="PGPASSWORD, which cron does not have"):
        await ControlPlane(load_settings({}), plane.store, plane.clock).triggers().install()


async def test_a_url_with_its_own_password_needs_no_variable(
    plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PGPASSWORD", "other")
    (tmp_path / "drumbeat.toml").write_text('store = "postgresql://me:hush@db/app"')

    with pytest.raises(DrumbeatError, match="the command crontab"):
        await ControlPlane(load_settings({}), plane.store, plane.clock).triggers().install()


def test_lines_have_the_variables_of_postgres_that_are_no_secrets() -> None:
    shell = {"PGHOST": "db", "PGUSER": "me", "PGPASSFILE": "/home/me/pass", "PGPASSWORD": "hush", "PATH": "/bin"}

    assert load_settings({"DRUMBEAT_STORE": "postgresql:///app"}).shell_variables(shell) == {
        name: shell[name] for name in ("PGHOST", "PGUSER", "PGPASSFILE")
    }
    assert load_settings({"DRUMBEAT_STORE": "redis://db/0"}).shell_variables(shell) == {}


async def test_lines_have_the_settings_of_the_shell_but_not_those_of_the_file(
    plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Mapping[str, str]] = []

    async def install(triggers: object, place: CronPlace) -> Sequence[str]:
        seen.append(place.variables)
        return []

    monkeypatch.setattr("drumbeat.triggers.crontab.install", install)
    (tmp_path / "drumbeat.toml").write_text('[pool]\nmax_inline = "2KB"\n')
    (tmp_path / "mine.toml").write_text('[engines.here]\nkind = "local"\n')
    variables = {"DRUMBEAT_LARGE": "file:///large", "DRUMBEAT_RETENTION": "off", "DRUMBEAT_ENGINES": "mine.toml"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    await ControlPlane(load_settings(os.environ), plane.store, plane.clock).triggers().install()

    assert seen == [{**variables, "DRUMBEAT_ENGINES": f"{tmp_path}/mine.toml"}]
