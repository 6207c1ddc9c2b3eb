"""The handler of AWS Lambda: after a check it waits for workers, at most until the function's time limit."""

import asyncio
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from drumbeat.adapters.aws_lambda import handler
from drumbeat.composition.plane import ControlPlane, open_control_plane
from drumbeat.core.clock import ManualClock
from drumbeat.core.engine import ENGINE_IN_POLICY
from drumbeat.core.pool import PoolId
from drumbeat.fleet.model import FleetPolicy
from drumbeat.pool.checker import Checker
from drumbeat.runtime.beat import BeatReport
from drumbeat.settings import load_settings
from drumbeat.store.interface import PoolChange
from drumbeat.triggers.webhook import SIGNATURE, TIMESTAMP, sign
from triggers.given import SECRET

LIMIT = timedelta(seconds=60)  #: the function's time limit
FILE = """
triggers:
  - {name: check, type: webhook, secret_variable: HOOK, input: {pool_id: papers}}
  - {name: reap, type: webhook, secret_variable: HOOK, machine: stale_worker_reaper}
"""


class Context:
    """The context of a call: how much time the function has left, by the clock of the test."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock

    def get_remaining_time_in_millis(self) -> int:
        return round((LIMIT - self._clock.elapsed()) / timedelta(milliseconds=1))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    clock = ManualClock()
    monkeypatch.setattr("drumbeat.composition.plane.SystemClock", lambda: clock)
    return clock


@pytest.fixture
def stays(clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, float]]:
    """The pools that the handler waited for, each with its limit in seconds. Each wait takes 20 s, and each check 10 s."""
    waited: list[tuple[str, float]] = []
    check = Checker.check

    async def slow_check(self: Checker, pool_id: PoolId, **more: Any) -> Any:
        await clock.advance(timedelta(seconds=10))
        return await check(self, pool_id, **more)

    async def stay(self: Checker, pool_id: PoolId, within: timedelta | None = None) -> bool:
        assert within is not None
        waited.append((pool_id, within.total_seconds()))
        await clock.advance(timedelta(seconds=20))
        return False

    async def prepare() -> None:
        async with open_control_plane(load_settings({}), create=True) as plane:
            await plane.pool("papers").create()
            await plane.fleets.scale_pool("queue", FleetPolicy(workers=0))
            await plane.fleets.create("gpus", FleetPolicy(workers=0))

    monkeypatch.setattr(Checker, "check", slow_check)
    monkeypatch.setattr(Checker, "stay", stay)
    monkeypatch.chdir(tmp_path)
    asyncio.run(prepare())
    return waited


async def _create(*names: str) -> None:
    async with open_control_plane(load_settings({})) as plane:
        for name in names:
            await plane.pool(name).create()


@pytest.mark.parametrize("event", [{"machine": "fleet_beat"}, {"machine": "fleet_beat", "pool_id": "gpus"}])
def test_a_fleets_beat_is_answered_without_waiting(
    stays: list[tuple[str, float]], clock: ManualClock, event: dict[str, str]
) -> None:
    answer = handler(event, Context(clock))

    assert answer["beats"]["gpus"]["ok"]
    assert stays == []


def test_a_reaper_starts_no_workers_to_wait_for(stays: list[tuple[str, float]], clock: ManualClock) -> None:
    answer = handler({"machine": "stale_worker_reaper"}, Context(clock))

    assert answer["beats"]["papers"]["ok"]
    assert stays == []


def test_all_waits_together_end_before_the_time_limit(stays: list[tuple[str, float]], clock: ManualClock) -> None:
    asyncio.run(_create("second", "third", "fourth"))

    answer = handler({}, Context(clock))

    assert set(answer["beats"]) == {"papers", "queue", "second", "third", "fourth"}
    assert [limit for _, limit in stays] == [5.0]
    assert clock.elapsed() < LIMIT + timedelta(seconds=20)


def test_each_wait_has_what_the_beat_and_earlier_waits_have_left(stays: list[tuple[str, float]], clock: ManualClock) -> None:
    asyncio.run(_create("second"))

    handler({}, Context(clock))

    assert [limit for _, limit in stays] == [25.0, 5.0]
    assert {name for name, _ in stays} == {"papers", "second"}


@pytest.mark.parametrize(("name", "waits"), [("check", [("papers", 45.0)]), ("reap", [])])
def test_a_webhook_waits_as_its_beat_needs(
    stays: list[tuple[str, float]],
    clock: ManualClock,
    name: str,
    waits: list[tuple[str, float]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path("triggers.yml").write_text(FILE)
    monkeypatch.setenv("HOOK", SECRET)
    stamp = int(clock.now().timestamp())
    headers = {TIMESTAMP: str(stamp), SIGNATURE: sign(SECRET, stamp, b"{}")}

    answer = handler({"rawPath": f"/triggers/{name}", "headers": headers, "body": "{}"}, Context(clock))

    assert (answer["statusCode"], "papers" in json.loads(answer["body"])["beats"]) == (200, True)
    assert stays == waits


def test_workers_of_an_engine_elsewhere_are_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Checker, "_beat", _nothing)
    monkeypatch.setattr(ControlPlane, "spawner", lambda plane, engines: opened.append(engines))
    Path("engines.toml").write_text('[engines.far]\nkind = "ssh"\n[[engines.far.hosts]]\nname = "a"\n')

    async def prepare() -> None:
        async with open_control_plane(load_settings({}), create=True) as plane:
            await plane.pool("papers").create()
            await plane.store.pools.change(PoolId("papers"), PoolChange(policy={ENGINE_IN_POLICY: "far"}))

    asyncio.run(prepare())

    assert handler({}, None)["beats"]["papers"]["ok"]
    assert opened == []


async def _nothing(*arguments: object, **more: object) -> BeatReport:
    return BeatReport(led=True)


def test_without_a_context_it_waits_for_ten_minutes(stays: list[tuple[str, float]]) -> None:
    handler({"pool_id": "papers"}, None)

    assert stays == [("papers", 600.0)]
