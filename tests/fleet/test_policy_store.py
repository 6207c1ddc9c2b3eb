"""What a fleet keeps of its policy: a change leaves the rest alone, and what must not be is refused before it is written."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from drumbeat.composition.plane import ControlPlane
from drumbeat.core.clock import ManualClock
from drumbeat.core.errors import InvalidInput, InvalidSettings, Refused
from drumbeat.core.pool import PRESETS, PoolId, PoolKind, PoolRow, pool, with_heartbeat
from drumbeat.core.worker import Worker, WorkerId, WorkerStatus
from drumbeat.fleet.model import FleetPolicy
from drumbeat.fleet.settings import VARIABLES
from drumbeat.pool.worker.options import WorkPlan, plan_of
from drumbeat.settings import Settings
from drumbeat.spawn.fake import FakeSpawner
from drumbeat.store.interface import PoolChange
from drumbeat.store.memory import MemoryStore
from fleet.given import seconds

NAME = "gpus"
POOL = PoolId(NAME)
PRICED = {"min_workers": "0", "max_per_day": "20", "price_per_hour": "0.5"}
MINUTE = timedelta(minutes=1)


@pytest.fixture
def plane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ControlPlane:
    for each in VARIABLES:
        monkeypatch.delenv(each.name, raising=False)
    clock = ManualClock()
    return ControlPlane(Settings(store="memory:", state_dir=tmp_path / "state"), MemoryStore(clock), clock)


async def kept(plane: ControlPlane) -> FleetPolicy:
    return FleetPolicy.from_json((await plane.store.pools.get(POOL)).policy)


async def rented(plane: ControlPlane, status: WorkerStatus) -> Worker:
    """A worker of RunPod's."""
    row = Worker(pool_id=POOL, worker_id=WorkerId("worker-0"), slot=0, provider="runpod")
    await plane.store.workers.add([row])
    row = await plane.store.workers.get(POOL, row.worker_id)
    return row if status is WorkerStatus.SPAWNING else await plane.store.workers.move(row, status, "so it is")


async def test_a_fleet_changes_only_in_what_is_told(plane: ControlPlane) -> None:
    await plane.fleets.configure(NAME, {"provider": "runpod", "policy": "queue_cover", **PRICED}, handlers={"": "command:cat"})
    before = await kept(plane)

    found = await plane.fleets.configure(NAME, {"max_workers": "5"})

    assert await kept(plane) == replace(before, max_workers=5)
    assert (found.is_new, found.changed, found.overruled) == (False, ("max_workers 10 → 5",), ())
    assert plan_of(found.pool).handlers == {"": "command:cat"}


async def test_what_is_told_to_be_none_is_dropped(plane: ControlPlane) -> None:
    await plane.fleets.configure(NAME, PRICED)

    found = await plane.fleets.configure(NAME, {"max_per_day": None, "idle_timeout": "5m"})

    assert (await kept(plane)).max_per_day is None
    assert found.changed == ("idle_timeout 600 s → 300 s", "max_per_day 20.0 → none")


async def test_told_nothing_a_fleet_stays_as_it_is(plane: ControlPlane) -> None:
    before = (await plane.fleets.configure(NAME, PRICED)).pool

    found = await plane.fleets.configure(NAME, {})

    assert (found.pool, found.changed) == (before, ())


async def test_with_a_file_the_file_is_the_whole(plane: ControlPlane, tmp_path: Path) -> None:
    file = tmp_path / "fleet.yml"
    file.write_text("policy: queue_cover\nkeep_idle: 2\n")
    await plane.fleets.configure(NAME, PRICED)

    await plane.fleets.configure(NAME, {"max_workers": 7}, file=file)

    assert await kept(plane) == FleetPolicy.from_json({"policy": "queue_cover", "keep_idle": 2, "max_workers": 7})


async def test_a_fixed_fleets_workers_are_changed(plane: ControlPlane) -> None:
    await plane.fleets.configure(NAME, {"policy": "fixed", "workers": "2"})

    found = await plane.fleets.configure(NAME, {"workers": "5"})

    assert (found.pool.kind, found.changed) == (PoolKind.FLEET, ("workers 2 → 5",))


@pytest.mark.parametrize(
    ("told", "handlers", "said"),
    [({"policy": "lag_aware"}, None, "expected the policy 'fixed'"), ({}, {"": "command:cat"}, "expected no handler")],
)
async def test_a_fleet_without_a_queue_gets_none(
    plane: ControlPlane, told: dict[str, Any], handlers: dict[str, str] | None, said: str
) -> None:
    await plane.fleets.configure(NAME, {"policy": "fixed"})

    with pytest.raises(InvalidInput, match=said):
        await plane.fleets.configure(NAME, told, handlers=handlers)


async def test_with_a_handler_a_fixed_fleet_is_a_pool_of_jobs(plane: ControlPlane) -> None:
    found = await plane.fleets.configure(NAME, {"policy": "fixed", "workers": 2}, handlers={"": "command:cat"})

    assert (found.pool.kind, plan_of(found.pool).handlers) == (PoolKind.JOBS, {"": "command:cat"})
    assert await plane.fleets.apply_environment(NAME) == FleetPolicy(workers=2)


async def test_how_many_jobs_a_worker_runs_stays_until_it_is_told(plane: ControlPlane) -> None:
    await plane.pool(NAME).create(concurrency=4)

    counts = [
        plan_of((await plane.fleets.configure(NAME, told)).pool).concurrency
        for told in ({}, {"keep_idle": 1}, {"concurrency": 1})
    ]

    assert counts == [4, 4, 1]


@pytest.mark.parametrize("where", ["settings", "file", "environment"])
async def test_engine_and_concurrency_that_are_chosen_replace_the_pools_own_even_if_they_are_the_default(
    where: str, plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await plane.pool(NAME).create(concurrency=4)
    await plane.store.pools.change(POOL, PoolChange(policy={"provider": "runpod"}))
    file = tmp_path / "fleet.yml"
    file.write_text("min_workers: 0\n" + ("engine: local\nconcurrency: 1\n" if where == "file" else ""))
    if where == "environment":
        monkeypatch.setenv("DRUMBEAT_PROVIDER", "local")
        monkeypatch.setenv("API_WORKER_CONCURRENCY", "1")

    await plane.fleets.configure(NAME, {"engine": "local", "concurrency": 1} if where == "settings" else {}, file=file)

    policy = await kept(plane)
    assert (policy.provider, policy.concurrency) == ("local", 1)


async def test_engine_and_concurrency_that_nobody_chooses_stay_the_pools_own(plane: ControlPlane, tmp_path: Path) -> None:
    await plane.pool(NAME).create(concurrency=4)
    await plane.store.pools.change(POOL, PoolChange(policy={"provider": "runpod"}))
    file = tmp_path / "fleet.yml"
    file.write_text("min_workers: 0\n")

    await plane.fleets.configure(NAME, {}, file=file)

    policy = await kept(plane)
    assert (policy.provider, policy.concurrency) == ("runpod", 4)


async def _scaled(plane: ControlPlane) -> PoolRow:
    return await plane.fleets.scale_pool(NAME, FleetPolicy.from_json({"policy": "lag_aware"}))


async def _made(plane: ControlPlane) -> PoolRow:
    return await plane.fleets.create(NAME, FleetPolicy())


@pytest.mark.parametrize("make", [_scaled, _made])
async def test_nobody_stays_for_ever_that_nobody_decides_about(plane: ControlPlane, make: Any) -> None:
    assert (await make(plane)).thresholds.controller_gone_after == 10 * MINUTE


@pytest.mark.parametrize(
    ("limits", "every", "gone"),
    [
        (PRESETS[PoolKind.JOBS], 30 * MINUTE, 150 * MINUTE),
        (replace(PRESETS[PoolKind.JOBS], controller_gone_after=30 * MINUTE), MINUTE, 30 * MINUTE),
        (replace(PRESETS[PoolKind.JOBS], controller_gone_after=30 * MINUTE), 10 * MINUTE, 50 * MINUTE),
        (replace(PRESETS[PoolKind.JOBS], controller_gone_after=seconds(12)), seconds(30), seconds(12)),
    ],
)
async def test_workers_outlast_some_beats_however_often_it_beats(
    plane: ControlPlane, limits: Any, every: timedelta, gone: timedelta
) -> None:
    await plane.fleets.scale_pool(NAME, FleetPolicy.from_json({"policy": "lag_aware"}), thresholds=limits)

    found = await plane.fleets.configure(NAME, {"every": every.total_seconds()})

    assert found.pool.thresholds.controller_gone_after == gone


async def test_a_fleet_that_beats_more_often_again_is_as_patient_as_before(plane: ControlPlane) -> None:
    found = [(await plane.fleets.configure(NAME, {"every": every})).pool.thresholds for every in ("30s", "1h", "30s")]

    assert [each.controller_gone_after for each in found] == [10 * MINUTE, 300 * MINUTE, 10 * MINUTE]


@pytest.mark.parametrize("status", [WorkerStatus.SPAWNING, WorkerStatus.STARTING, WorkerStatus.ERROR])
async def test_another_provider_is_refused_while_workers_of_the_old_one_are_there(
    plane: ControlPlane, status: WorkerStatus, monkeypatch: pytest.MonkeyPatch
) -> None:
    await plane.fleets.configure(NAME, {"provider": "runpod", **PRICED})
    before = await plane.store.pools.get(POOL)
    await rented(plane, status)
    local = replace(await kept(plane), provider="local")
    said = r"cannot change .* from runpod to local .* \(worker-0\); drain them first: drumbeat fleet create gpus"

    with pytest.raises(InvalidSettings, match=said):
        await plane.fleets.configure(NAME, {"provider": "local"})
    with pytest.raises(InvalidSettings, match=said):
        await plane.fleets.scale_pool(NAME, local)
    with pytest.raises(InvalidSettings, match=said):
        await plane.fleets.set_policy(POOL, local)
    with pytest.raises(InvalidSettings, match=said):
        await plane.fleets.apply_environment(NAME, provider="local")
    monkeypatch.setenv("DRUMBEAT_PROVIDER", "local")
    with pytest.raises(InvalidSettings, match=said):
        await plane.fleets.apply_environment(NAME)
    assert await plane.store.pools.get(POOL) == before


async def test_once_they_are_gone_another_provider_is_taken(plane: ControlPlane) -> None:
    await plane.fleets.configure(NAME, {"provider": "runpod", **PRICED})
    row = await rented(plane, WorkerStatus.ERROR)
    await plane.store.workers.mark_reaped(POOL, row.worker_id)

    found = await plane.fleets.configure(NAME, {"provider": "local"})

    assert found.changed == ("provider runpod → local",)


@pytest.mark.parametrize(
    ("told", "refused"),
    [
        ({"max_per_day": 0.01}, True),
        ({"max_per_hour": 1, "price_per_hour": 0}, True),
        ({"max_per_month": 5, "provider": "runpod"}, False),
        ({"max_per_month": 5, "price_per_hour": 0.1}, False),
    ],
)
async def test_a_ceiling_needs_a_price(plane: ControlPlane, told: dict[str, Any], refused: bool) -> None:
    if not refused:
        assert (await plane.fleets.configure(NAME, told)).is_new
        return
    for policy in ("fixed", "lag_aware"):
        with pytest.raises(InvalidSettings, match="set price_per_hour, or drop the ceiling"):
            await plane.fleets.configure(NAME, {**told, "policy": policy})
    assert await plane.store.pools.list() == []


async def test_a_price_that_a_ceiling_needs_is_not_dropped(plane: ControlPlane) -> None:
    await plane.fleets.configure(NAME, PRICED)

    with pytest.raises(InvalidSettings, match="expected a price with max_per_hour"):
        await plane.fleets.configure(NAME, {"price_per_hour": None})


async def test_a_plan_goes_by_the_environment_as_a_beat_does_and_writes_nothing(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    await plane.fleets.configure(NAME, {"min_workers": 1})
    before = await plane.store.pools.get(POOL)
    monkeypatch.setenv("MIN_ACTIVE_GPUS", "3")

    planned = await plane.fleet(NAME).plan(FakeSpawner(ManualClock()), await plane.fleets.effective_policy(NAME))

    assert (planned.wanted, await plane.store.pools.get(POOL)) == (3, before)
    assert await plane.fleets.apply_environment(NAME) == replace(FleetPolicy.from_json(before.policy), min_workers=3)
    assert (await kept(plane)).min_workers == 3


async def test_what_a_command_says_counts_more_than_the_environment(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAX_ACTIVE_GPUS", "9")
    monkeypatch.setenv("ORCHESTRATOR_POLL_SEC", "45")

    made = await plane.fleets.configure(NAME, {"max_workers": 2})
    policy = await plane.fleets.apply_environment(NAME, every=120)

    assert (made.pool.policy["max_workers"], made.overruled) == (2, ("max_workers 2 → 9",))
    assert (policy.max_workers, policy.every) == (9, 2 * MINUTE)


@pytest.mark.parametrize(
    ("variable", "text", "said"),
    [
        ("DRUMBEAT_PROVIDER", "nope", r"expected the name of an engine \(local\), got 'nope'"),
        ("ORCHESTRATOR_POLL_SEC", "0", "every to be 0.1 s or more"),
        ("MIN_ACTIVE_GPUS", "11", "min_workers ≤ max_workers"),
        ("MAX_ACTIVE_GPUS", "ten", "expected a number in the environment variable MAX_ACTIVE_GPUS"),
    ],
)
async def test_an_environment_that_cannot_be_is_not_written(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch, variable: str, text: str, said: str
) -> None:
    before = (await plane.fleets.configure(NAME, {})).pool
    monkeypatch.setenv(variable, text)

    with pytest.raises(InvalidSettings, match=said):
        await plane.fleets.apply_environment(NAME)

    assert await plane.store.pools.get(POOL) == before
    [told] = (await plane.fleets.configure(NAME, {})).overruled
    assert told.startswith("no beat is possible with these variables: expected")


async def test_a_policy_that_cannot_be_any_more_is_mended(plane: ControlPlane) -> None:
    await plane.store.pools.create(pool(NAME, PoolKind.JOBS, policy="lag_aware", provider="nope", every_seconds=0))

    found = await plane.fleets.configure(NAME, {"provider": "local", "every": "30s"})

    assert found.changed == ("provider nope → local", "every 0 s → 30 s", "controller_gone_after none → 600 s")


async def test_a_pool_that_nobody_made_a_fleet_is_left_alone(plane: ControlPlane) -> None:
    await plane.pool(NAME).create(handlers={"": "command:cat"})

    for heed in (plane.fleets.apply_environment, plane.fleets.effective_policy):
        with pytest.raises(InvalidInput, match=r"got gpus, a pool of jobs without a policy; .* drumbeat fleet create gpus"):
            await heed(NAME)


async def test_handlers_are_added_to_those_of_the_pool(plane: ControlPlane) -> None:
    by_task: dict[str, Any] = {"task_handler:c": "m:c"}
    await plane.pool(NAME).create(WorkPlan(handlers={"a": "m:a", "b": "m:b", "c": "m:c"}), **by_task)

    scaled = await plane.fleets.configure(NAME, {"policy": "lag_aware"}, handlers={"c": "command:true"})
    again = await plane.fleets.configure(NAME, {}, handlers={"d": "m:d"})

    three = {"a": "m:a", "b": "m:b", "c": "command:true"}
    assert (scaled.is_new, plan_of(scaled.pool).handlers) == (True, three)
    assert "task_handler:c" not in scaled.pool.policy, "no task replaces what a user has set"
    assert plan_of(again.pool).handlers == {**three, "d": "m:d"}
    assert again.changed == (f"handlers {three} → {three | {'d': 'm:d'}}",)


@pytest.mark.parametrize("how", ["preset", "file"])
async def test_time_limits_in_which_live_workers_would_seem_silent_are_refused(
    plane: ControlPlane, tmp_path: Path, how: str
) -> None:
    await plane.pool(NAME).create(thresholds=with_heartbeat(PRESETS[PoolKind.JOBS], seconds(3600)))
    before = await plane.store.pools.get(POOL)
    worker = await rented(plane, WorkerStatus.STARTING)
    file = tmp_path / "fleet.yml"
    file.write_text("preset: jobs\n")
    given: dict[str, Any] = {"preset": "jobs"} if how == "preset" else {"file": file}

    with pytest.raises(Refused, match="1 live workers of gpus send a heartbeat every 3600 s and would seem silent after 60 s"):
        await plane.fleets.configure(NAME, {"provider": "runpod"}, **given)

    assert await plane.store.pools.get(POOL) == before
    await plane.store.workers.move(worker, WorkerStatus.TERMINATED, "it is stopped")
    found = await plane.fleets.configure(NAME, {"provider": "runpod"}, **given)
    assert found.pool.thresholds.heartbeat_every == seconds(30)


async def test_changed_time_limits_are_listed(plane: ControlPlane) -> None:
    await plane.fleets.configure(NAME, {"policy": "lag_aware"})

    found = await plane.fleets.configure(NAME, {"max_workers": "5"}, preset="gpu")
    again = await plane.fleets.configure(NAME, {}, preset="gpu")

    assert found.changed[:2] == ("max_workers 10 → 5", "heartbeat_every 30 s → 20 s")
    assert "lost_after 120 s → 300 s" in found.changed
    assert again.changed == ()
