"""Several processes change one fleet's settings at the same time: each change is kept, and none is made over an unseen one."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from drumbeat.composition.plane import ControlPlane
from drumbeat.core.clock import ManualClock
from drumbeat.core.errors import InvalidSettings, StaleWrite
from drumbeat.core.pool import PoolId, PoolRow
from drumbeat.fleet.model import FleetPolicy
from drumbeat.fleet.settings import VARIABLES
from drumbeat.pool.worker.options import plan_of
from drumbeat.settings import Settings
from drumbeat.store.interface import PoolChange
from drumbeat.store.memory import MemoryStore

NAME = "gpus"
POOL = PoolId(NAME)
QUEUE = {"policy": "lag_aware", "min_workers": "0", "price_per_hour": "0.5", "max_per_day": "20"}
FIXED = {"policy": "fixed", "workers": "2"}

Change = Callable[[], Awaitable[object]]


@pytest.fixture
def plane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ControlPlane:
    for each in VARIABLES:
        monkeypatch.delenv(each.name, raising=False)
    clock = ManualClock()
    return ControlPlane(Settings(store="memory:", state_dir=tmp_path / "state"), MemoryStore(clock), clock)


def meanwhile(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch, change: Change) -> None:
    """Let another process make a change right before the next write to a pool."""
    pools, write = plane.store.pools, plane.store.pools.change

    async def second(pool_id: PoolId, what: PoolChange, **more: Any) -> PoolRow:
        monkeypatch.setattr(pools, "change", write)
        await change()
        return await write(pool_id, what, **more)

    monkeypatch.setattr(pools, "change", second)


async def kept(plane: ControlPlane) -> FleetPolicy:
    return FleetPolicy.from_json((await plane.store.pools.get(POOL)).policy)


@pytest.mark.parametrize("fleet", [QUEUE, FIXED], ids=["queue", "no queue"])
async def test_two_processes_that_change_settings_at_once_keep_each_others(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch, fleet: dict[str, str]
) -> None:
    await plane.fleets.configure(NAME, fleet)
    before = await kept(plane)
    priced = {"price_per_hour": "0.5", "max_per_day": "3"}
    meanwhile(plane, monkeypatch, lambda: plane.fleets.configure(NAME, priced))

    found = await plane.fleets.configure(NAME, {"idle_timeout": "5m"})

    assert await kept(plane) == replace(
        before, price_per_hour=0.5, max_per_day=3.0, idle_timeout=(await kept(plane)).idle_timeout
    )
    assert [each.split()[0] for each in found.changed] == ["idle_timeout"]


async def test_a_beats_environment_leaves_a_ceiling_that_is_set_meanwhile(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    await plane.fleets.configure(NAME, QUEUE)
    monkeypatch.setenv("MAX_ACTIVE_GPUS", "4")
    meanwhile(plane, monkeypatch, lambda: plane.fleets.configure(NAME, {"max_per_day": "3"}))

    used = await plane.fleets.apply_environment(NAME)

    assert (used.max_workers, used.max_per_day) == (4, 3.0)
    assert await kept(plane) == used


async def test_a_handler_added_meanwhile_stays(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    await plane.fleets.configure(NAME, QUEUE, handlers={"": "command:cat"})
    added = {"thumbnail": "command:true"}
    meanwhile(plane, monkeypatch, lambda: plane.pool(NAME).update(handlers=added))

    await plane.fleets.configure(NAME, {"max_workers": "5"})

    assert plan_of(await plane.store.pools.get(POOL)).handlers == {"": "command:cat", **added}
    assert (await kept(plane)).max_workers == 5


@pytest.mark.parametrize("fleet", [QUEUE, FIXED], ids=["queue", "no queue"])
async def test_a_fleet_that_two_processes_create_at_once_has_the_settings_of_both(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch, fleet: dict[str, str]
) -> None:
    pools, create = plane.store.pools, plane.store.pools.create

    async def second(pool: PoolRow) -> PoolRow:
        monkeypatch.setattr(pools, "create", create)
        await plane.fleets.configure(NAME, {**fleet, "max_workers": "5"})
        return await create(pool)

    monkeypatch.setattr(pools, "create", second)

    found = await plane.fleets.configure(NAME, {**fleet, "keep_idle": "1"})

    policy = await kept(plane)
    assert (policy.max_workers, policy.keep_idle, found.is_new) == (5, 1, False)


async def test_what_is_no_longer_allowed_after_a_change_meanwhile_is_refused(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    await plane.fleets.configure(NAME, QUEUE)
    meanwhile(plane, monkeypatch, lambda: plane.fleets.configure(NAME, {"max_workers": "2"}))

    with pytest.raises(InvalidSettings, match="min_workers ≤ max_workers"):
        await plane.fleets.configure(NAME, {"min_workers": "4"})

    policy = await kept(plane)
    assert (policy.min_workers, policy.max_workers) == (0, 2)


@pytest.mark.parametrize("fleet", [QUEUE, FIXED], ids=["queue", "no queue"])
async def test_a_whole_policy_replaces_only_the_one_that_its_author_saw(plane: ControlPlane, fleet: dict[str, str]) -> None:
    seen = (await plane.fleets.configure(NAME, fleet)).pool
    await plane.fleets.configure(NAME, {"max_workers": "7"})
    changed, policy = await kept(plane), FleetPolicy.from_json({**seen.policy, "keep_idle": 1})
    write = plane.fleets.scale_pool if fleet is QUEUE else plane.fleets.set_policy

    with pytest.raises(StaleWrite):
        await write(POOL, policy, seen=seen)
    assert await kept(plane) == changed

    await write(POOL, policy)
    assert await kept(plane) == policy
