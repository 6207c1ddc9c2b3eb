"""A fleet that is kept running: what is changed in its policy meanwhile is followed."""

import asyncio
import signal
from datetime import timedelta
from pathlib import Path
from typing import NoReturn

import pytest

from drumbeat.cli.fleet_beats import _BeatPrinter, _PolicyWatch, _run_changed, _run_loop
from drumbeat.composition.plane import ControlPlane
from drumbeat.core.clock import SystemClock
from drumbeat.core.errors import InvalidSettings, Unanswered
from drumbeat.core.pool import PoolId
from drumbeat.fleet.model import FleetPolicy
from drumbeat.settings import Settings
from drumbeat.spawn.fake import FakeSpawner
from drumbeat.store.memory import MemoryStore

POOL = PoolId("p")
BRISK = timedelta(milliseconds=100)


@pytest.fixture
def places() -> dict[str, FakeSpawner]:
    return {name: FakeSpawner(SystemClock()) for name in ("local", "runpod")}


@pytest.fixture
def plane(tmp_path: Path, places: dict[str, FakeSpawner], monkeypatch: pytest.MonkeyPatch) -> ControlPlane:
    plane = ControlPlane(Settings(store="memory:", state_dir=tmp_path), MemoryStore(SystemClock()), SystemClock())
    monkeypatch.setattr(plane, "spawner", places.__getitem__)
    return plane


@pytest.mark.parametrize(
    "changed",
    [FleetPolicy(provider="runpod", workers=1, every=BRISK), FleetPolicy(workers=1, every=2 * BRISK)],
    ids=["provider", "pace"],
)
async def test_another_provider_or_pace_ends_the_loop_that_was_begun_without_it(
    plane: ControlPlane, places: dict[str, FakeSpawner], changed: FleetPolicy
) -> None:
    begun = FleetPolicy(workers=0, every=BRISK)
    await plane.fleets.create(POOL, begun)
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        beating = group.create_task(_run_loop(plane, POOL, begun, _BeatPrinter(), asyncio.Event()))
        while await plane.store.beats.last(POOL) is None:
            await asyncio.sleep(BRISK.total_seconds())
        await plane.fleets.set_policy(POOL, changed)

    assert beating.result() == changed
    assert places["local"].running(POOL) == ([] if changed.provider == "runpod" else ["worker-0"])
    assert places["runpod"].running(POOL) == []


async def test_a_provider_that_cannot_be_had_is_waited_for(
    plane: ControlPlane, places: dict[str, FakeSpawner], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(provider: str) -> FakeSpawner:
        raise InvalidSettings(f"no key for {provider}")

    turned = FleetPolicy(provider="runpod", workers=1, every=BRISK)
    await plane.fleets.create(POOL, turned)
    monkeypatch.setattr(plane, "spawner", refuse)

    found = await _run_changed(plane, POOL, turned, _BeatPrinter(), asyncio.Event())

    assert found == turned
    assert await plane.store.beats.last(POOL) is None


async def test_a_signal_in_the_beat_that_turns_counts(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, stop = FleetPolicy(workers=0, every=BRISK), asyncio.Event()
    await plane.fleets.create(POOL, FleetPolicy(workers=0, every=2 * BRISK))
    check = _PolicyWatch.check

    def check_and_end(watch: _PolicyWatch, policy: FleetPolicy) -> None:
        check(watch, policy)
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(_PolicyWatch, "check", check_and_end)
    await _run_loop(plane, POOL, begun, _BeatPrinter(), stop)

    assert stop.is_set()


async def test_who_is_stopped_while_an_engine_is_silent_is_told_which_workers_may_run(
    plane: ControlPlane, places: dict[str, FakeSpawner], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(_: PoolId) -> NoReturn:
        raise Unanswered("no answer within 2 s")

    policy, stop = FleetPolicy(workers=1, every=BRISK), asyncio.Event()
    await plane.fleets.create(POOL, policy)
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        group.create_task(_run_loop(plane, POOL, policy, _BeatPrinter(), stop))
        while places["local"].running(POOL) != ["worker-0"]:
            await asyncio.sleep(BRISK.total_seconds())
        monkeypatch.setattr(places["local"], "list", silent)
        while "failed to list the instances of pool p" not in caplog.text:
            await asyncio.sleep(BRISK.total_seconds())
        signal.raise_signal(signal.SIGTERM)

    assert "may still run: worker-0; end them with: drumbeat fleet drain p" in caplog.text
