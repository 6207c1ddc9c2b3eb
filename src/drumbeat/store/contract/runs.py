"""Tests of creating and updating runs."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from drumbeat.core.errors import AlreadyExists, Fenced, IllegalMove, NotFound, StaleWrite
from drumbeat.core.event import set_phase, start, stop
from drumbeat.core.pool import PoolId, PoolKind, PoolRow, pool as pool_of
from drumbeat.core.run import RUN_ENDED, Run, RunId, RunStatus
from drumbeat.store.contract.given import AWKWARD, MINUTE, Elapse, Given, event_types, new_run, outdated, taken, unique
from drumbeat.store.interface import RunChange, Store

STARTING = RunChange(status=RunStatus.STARTING)

SHORTEST: Mapping[RunStatus, tuple[RunStatus, ...]] = {
    RunStatus.COMPLETED: (RunStatus.STARTING, RunStatus.RUNNING, RunStatus.STOPPING, RunStatus.COMPLETED),
    RunStatus.FAILED: (RunStatus.FAILED,),
    RunStatus.CANCELLED: (RunStatus.CANCELLED,),
}


async def along(store: Store, run: Run, *path: RunStatus) -> Run:
    """Move the run through these statuses, and return it."""
    for status in path:
        run = await store.runs.update(run, RunChange(status=status))
    return run


class CreateContract(Given):
    async def test_a_run_comes_back_as_it_was_made(self, store: Store) -> None:
        run = Run(run_id=RunId(unique("run")), name="Läufe 🥁", config=AWKWARD, template_id="t1", expected_workers=3)
        before = await store.now()

        made = await store.runs.create(run, pool_of(run.run_id, PoolKind.BENCH))

        assert made == await store.runs.get(run.run_id)
        assert made == replace(run, created_at=made.created_at, updated_at=made.updated_at)
        after = await store.now()
        assert all(stamp is not None and before <= stamp <= after for stamp in (made.created_at, made.updated_at))

    async def test_a_runs_pool_is_made_with_it_and_has_its_id(self, store: Store) -> None:
        run_id = unique("run")

        await store.runs.create(Run(run_id=RunId(run_id), name="a", config={}), pool_of(run_id, PoolKind.BENCH, max=3))

        made = await store.pools.get(PoolId(run_id))
        assert (made.kind, made.policy) == (PoolKind.BENCH, {"max": 3})
        assert await store.events.append(PoolId(run_id), [start(1)])

    async def test_a_run_is_made_once(self, store: Store) -> None:
        run = await new_run(store)

        with pytest.raises(AlreadyExists, match=run.run_id):
            await store.runs.create(replace(run, name="another"), pool_of(run.run_id, PoolKind.BENCH))

        assert await store.runs.get(run.run_id) == run

    async def test_only_one_of_several_concurrent_creations_of_a_run_succeeds(self, store: Store) -> None:
        run = Run(run_id=RunId(unique("run")), name="a", config={})
        making = (store.runs.create(run, pool_of(run.run_id, PoolKind.BENCH)) for _ in range(8))

        answers = await asyncio.gather(*making, return_exceptions=True)

        assert sorted(type(answer).__name__ for answer in answers) == ["AlreadyExists"] * 7 + ["Run"]

    async def test_a_run_is_not_made_where_a_pool_has_its_id(self, store: Store, pool: PoolRow) -> None:
        run_id = RunId(pool.pool_id)

        with pytest.raises(AlreadyExists):
            await store.runs.create(Run(run_id=run_id, name="a", config={}), pool)

        with pytest.raises(NotFound):
            await store.runs.get(run_id)
        assert await store.pools.get(pool.pool_id) == pool

    async def test_an_unknown_run_is_not_got(self, store: Store, pool: PoolRow) -> None:
        with pytest.raises(NotFound, match="run-nobody-made"):
            await store.runs.get(RunId("run-nobody-made"))
        with pytest.raises(NotFound):
            await store.runs.get(RunId(pool.pool_id))


class UpdateContract(Given):
    async def test_what_changes_is_kept_and_the_rest_stays(self, store: Store) -> None:
        run = await along(store, await new_run(store, table="t"), RunStatus.STARTING)
        change: dict[str, Any] = {
            "status": RunStatus.RUNNING,
            "phase": "WARMUP",
            "completion_reason": "none yet",
            "expected_workers": 4,
            "operations": 2**40,
            "errors": 2,
            "qps": 1234.5,
            "controller_state": AWKWARD,
            "custom_metrics": {"p95": 1.5},
        }

        after = await store.runs.update(run, RunChange(**change))

        assert after == await store.runs.get(run.run_id)
        assert after == replace(run, **change, updated_at=after.updated_at)

    async def test_an_empty_change_only_updates_the_time(self, store: Store, elapse: Elapse) -> None:
        run = await new_run(store)
        fields: dict[str, Any] = {"phase": "WARMUP", "completion_reason": "user", "expected_workers": 3, "operations": 5}
        fields |= {"errors": 2, "qps": 1.5, "controller_state": {"n": 1}, "custom_metrics": {"m": 1}}
        await store.runs.update(run, RunChange(**fields))
        await elapse(5 * MINUTE)
        before = await store.runs.get(run.run_id)

        after = await store.runs.update(run, RunChange())

        assert after == replace(before, updated_at=after.updated_at, **fields)
        assert before.updated_at is not None
        assert after.updated_at is not None
        assert after.updated_at - before.updated_at >= 5 * MINUTE

    async def test_zero_and_empty_values_are_changes_too(self, store: Store) -> None:
        run = await new_run(store)
        before = await store.runs.update(run, RunChange(operations=5, qps=1.5, custom_metrics={"m": 1}, phase="WARMUP"))
        assert (before.operations, before.qps, before.custom_metrics, before.phase) == (5, 1.5, {"m": 1}, "WARMUP")

        after = await store.runs.update(run, RunChange(operations=0, qps=0.0, custom_metrics={}, phase=""))

        assert (after.operations, after.qps, after.custom_metrics, after.phase) == (0, 0.0, {}, "")

    @pytest.mark.parametrize("stamp", ["started", "warmup_started", "warmup_ended", "ended"])
    async def test_a_time_is_stamped_when_asked(self, store: Store, stamp: str) -> None:
        run = await new_run(store)
        before = await store.now()
        change: dict[str, Any] = {stamp: True}

        after = await store.runs.update(run, RunChange(**change))

        time = getattr(after, f"{stamp}_at")
        assert before <= time <= await store.now()
        assert after == replace(run, updated_at=after.updated_at, **{f"{stamp}_at": time})

    async def test_a_time_is_stamped_once(self, store: Store, elapse: Elapse) -> None:
        run = await new_run(store)
        stamps = RunChange(started=True, warmup_started=True, warmup_ended=True, ended=True)
        await store.runs.update(run, stamps)
        await elapse(5 * MINUTE)
        before = await store.runs.get(run.run_id)

        after = await store.runs.update(run, stamps)

        assert after == replace(before, updated_at=after.updated_at)

    async def test_a_run_goes_all_the_way(self, store: Store) -> None:
        run = await along(store, await new_run(store), *SHORTEST[RunStatus.COMPLETED])

        assert (await store.runs.get(run.run_id)).status is RunStatus.COMPLETED

    @pytest.mark.parametrize("end", sorted(RUN_ENDED))
    async def test_an_ended_run_moves_no_more(self, store: Store, end: RunStatus) -> None:
        run = await along(store, await new_run(store), *SHORTEST[end])

        for status in set(RunStatus) - {end}:
            with pytest.raises(IllegalMove, match=run.run_id):
                await store.runs.update(run, RunChange(status=status))

        assert await store.runs.get(run.run_id) == run

    @pytest.mark.parametrize("end", sorted(RUN_ENDED))
    async def test_an_ended_run_keeps_metrics_that_are_added_later(self, store: Store, end: RunStatus) -> None:
        run = await along(store, await new_run(store), *SHORTEST[end])
        words = {"text": "It was slow.\nÄ 🥁 '\"<b>", "model": "m", "unknown_numbers": ["1,235"], "shortened": False}

        after = await store.runs.update(run, RunChange(custom_metrics={**run.custom_metrics, "explanation": words}))

        assert after == await store.runs.get(run.run_id)
        assert after == replace(run, custom_metrics={**run.custom_metrics, "explanation": words}, updated_at=after.updated_at)

    async def test_a_run_may_be_set_to_the_status_it_has(self, store: Store) -> None:
        run = await along(store, await new_run(store), RunStatus.STARTING)

        after = await store.runs.update(run, RunChange(status=RunStatus.STARTING, phase="PREPARING"))

        assert (after.status, after.phase) == (RunStatus.STARTING, "PREPARING")

    async def test_a_change_of_a_run_writes_its_events(self, store: Store) -> None:
        run = await new_run(store)

        await store.runs.update(run, STARTING, [start(2), set_phase("WARMUP")])

        assert await event_types(store, PoolId(run.run_id)) == [(1, "START"), (2, "SET_PHASE")]

    async def test_an_illegal_change_writes_no_event(self, store: Store) -> None:
        run = await new_run(store)

        with pytest.raises(IllegalMove, match=run.run_id):
            await store.runs.update(run, RunChange(status=RunStatus.COMPLETED, phase="DONE"), [stop("done")])

        assert await store.runs.get(run.run_id) == run
        assert await event_types(store, PoolId(run.run_id)) == []

    async def test_a_run_that_has_moved_since_is_not_changed(self, store: Store) -> None:
        before = await new_run(store)
        run = await along(store, before, RunStatus.CANCELLING)

        with pytest.raises(StaleWrite, match=run.run_id):
            await store.runs.update(before, STARTING, [start(1)])

        assert await store.runs.get(run.run_id) == run
        assert await event_types(store, PoolId(run.run_id)) == []

    async def test_of_many_changes_at_once_one_wins(self, store: Store) -> None:
        run = await new_run(store)
        changing = (store.runs.update(run, STARTING, [start(n)]) for n in range(8))

        answers = await asyncio.gather(*changing, return_exceptions=True)

        assert sorted(type(answer).__name__ for answer in answers) == ["Run"] + ["StaleWrite"] * 7
        assert await event_types(store, PoolId(run.run_id)) == [(1, "START")]

    async def test_an_unknown_run_is_not_changed(self, store: Store) -> None:
        with pytest.raises(NotFound):
            await store.runs.update(Run(run_id=RunId(unique("run")), name="a", config={}), STARTING)

    async def test_the_holder_of_the_lease_may_change_a_run(self, store: Store) -> None:
        run = await new_run(store)
        lease = await taken(store, run.run_id)

        assert (await store.runs.update(run, STARTING, fence=lease.fence)).status is RunStatus.STARTING

    async def test_an_outdated_controller_changes_no_run(self, store: Store) -> None:
        run = await new_run(store)
        fence = await outdated(store, await taken(store, run.run_id))

        with pytest.raises(Fenced):
            await store.runs.update(run, STARTING, [start(1)], fence=fence)

        assert await store.runs.get(run.run_id) == run
        assert await event_types(store, PoolId(run.run_id)) == []


class RunsContract(CreateContract, UpdateContract):
    """All tests of creating and updating runs."""
