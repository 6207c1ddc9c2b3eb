"""Tests of listing and deleting runs."""

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import pytest

from drumbeat.core.beat import NewBeat
from drumbeat.core.errors import NotFound, Refused
from drumbeat.core.log import NewLog
from drumbeat.core.pool import PoolId, PoolKind, PoolRow, pool as pool_of
from drumbeat.core.run import RUN_ENDED, Result, Run, RunId, RunStatus
from drumbeat.core.worker import WorkerStatus
from drumbeat.store.contract.executions import execution
from drumbeat.store.contract.given import MINUTE, SECOND, Elapse, Given, active, heartbeat, moved, new_run, sample, unique
from drumbeat.store.contract.results import file
from drumbeat.store.contract.runs import SHORTEST, along
from drumbeat.store.contract.steps import step
from drumbeat.store.interface import Store

_RUNNING = (RunStatus.STARTING, RunStatus.RUNNING)
PATHS: Mapping[RunStatus, tuple[RunStatus, ...]] = {
    RunStatus.PREPARED: (),
    RunStatus.STARTING: (RunStatus.STARTING,),
    RunStatus.RUNNING: _RUNNING,
    RunStatus.STOPPING: (*_RUNNING, RunStatus.STOPPING),
    RunStatus.CANCELLING: (RunStatus.CANCELLING,),
    **SHORTEST,
}


class ListRunsContract(Given):
    async def test_runs_are_listed_newest_first(self, store: Store, elapse: Elapse) -> None:
        made = []
        for _ in range(3):
            await elapse(SECOND)
            made.append((await new_run(store)).run_id)

        assert [run.run_id for run in await store.runs.list(limit=2)] == [made[2], made[1]]

    async def test_runs_are_listed_by_status(self, store: Store) -> None:
        prepared, starting, failed = [await new_run(store) for _ in range(3)]
        starting = await along(store, starting, RunStatus.STARTING)
        failed = await along(store, failed, RunStatus.FAILED)

        listed = await store.runs.list(statuses=[RunStatus.STARTING, RunStatus.FAILED])

        assert {run.status for run in listed} <= {RunStatus.STARTING, RunStatus.FAILED}
        assert starting in listed
        assert failed in listed
        assert prepared not in listed

    @pytest.mark.parametrize(
        ("filters", "expected"),
        [
            ({}, ["c", "b", "a"]),
            ({"search": "orders"}, ["b", "a"]),
            ({"search": "ORDERS 2"}, ["b"]),
            ({"search": "100%"}, ["c"]),
            ({"search": "1_0"}, []),
            ({"template_id": "t1"}, ["c", "a"]),
            ({"load_mode": "QPS"}, ["b"]),
            ({"scaling_mode": "FIXED"}, ["c", "b"]),
            ({"search": "orders", "template_id": "t1", "load_mode": "CONCURRENCY", "scaling_mode": "AUTO"}, ["a"]),
            ({"scaling_mode": "BOUNDED"}, []),
            ({"config_hash": "h1"}, ["c", "b"]),
            ({"config_hash": "h1", "load_mode": "QPS"}, ["b"]),
            ({"config_hash": "h"}, []),
            ({"config_hash": "h1", "template_id": "t1"}, ["c"]),
            ({"config_hash": "h1", "statuses": [RunStatus.PREPARED]}, ["c", "b"]),
            ({"statuses": [RunStatus.PREPARED], "search": "orders", "load_mode": "QPS"}, ["b"]),
            ({"statuses": [RunStatus.PREPARED], "template_id": "t1"}, ["c", "a"]),
            ({"statuses": [RunStatus.STARTING], "template_id": "t1"}, []),
            ({"statuses": [RunStatus.PREPARED, RunStatus.FAILED], "template_id": "t1"}, ["c", "a"]),
            ({"statuses": [RunStatus.COMPLETED], "template_id": "t1"}, []),
        ],
        ids=str,
    )
    async def test_runs_are_listed_as_asked(
        self, store: Store, elapse: Elapse, filters: dict[str, Any], expected: list[str]
    ) -> None:
        mark = unique("run")
        rows: dict[str, tuple[str, str | None, dict[str, Any]]] = {
            "a": ("orders 1", "t1", {"load_mode": "CONCURRENCY", "scaling": {"mode": "AUTO"}}),
            "b": ("Orders 2", None, {"load_mode": "QPS", "scaling": {"mode": "FIXED", "min_workers": 2}, "config_hash": "h1"}),
            "c": ("at 100%!", "t1", {"scaling": {"mode": "FIXED"}, "config_hash": "h1"}),
        }
        for each, (name, template_id, config) in rows.items():
            run = Run(run_id=RunId(f"{mark}-{each}"), name=name, config=config, template_id=template_id)
            await store.runs.create(run, pool_of(run.run_id, PoolKind.BENCH))
            await elapse(SECOND)

        listed = [run.run_id for run in await store.runs.list(**filters)]

        assert [each for each in listed if each.startswith(mark)] == [f"{mark}-{each}" for each in expected]

    async def test_a_config_of_another_shape_has_no_mode(self, store: Store) -> None:
        run = await new_run(store, scaling="none", load_mode=None)

        assert run.run_id not in [each.run_id for each in await store.runs.list(scaling_mode="FIXED", load_mode="QPS")]
        assert run.run_id in [each.run_id for each in await store.runs.list()]

    async def test_runs_are_listed_by_when_they_were_made(self, store: Store, elapse: Elapse) -> None:
        made = []
        for _ in range(4):
            await elapse(MINUTE)
            made.append((await new_run(store)).run_id)
        second, third, fourth = [(await store.runs.get(run_id)).created_at for run_id in made[1:]]

        assert [run.run_id for run in await store.runs.list(since=second, until=fourth)] == [made[2], made[1]]
        assert [run.run_id for run in await store.runs.list(since=third)] == [made[3], made[2]]
        assert [run.run_id for run in await store.runs.list(until=second, limit=1)] == [made[0]]

    async def test_runs_are_listed_page_by_page(self, store: Store, elapse: Elapse) -> None:
        made = []
        for _ in range(3):
            await elapse(SECOND)
            made.append((await new_run(store)).run_id)

        pages = [await store.runs.list(offset=offset, limit=1) for offset in range(3)]

        assert [run.run_id for page in pages for run in page] == made[::-1]


async def filled(store: Store) -> Run:
    """Create a run that has a row in every table that stores data of runs."""
    run = await new_run(store)
    pool_id = PoolId(run.run_id)
    worker = await active(store, await store.pools.get(pool_id))
    await store.membership.beat(heartbeat(worker, sample=sample(1, 10)))
    await moved(store, worker, WorkerStatus.TERMINATED)
    await store.beats.append(pool_id, NewBeat(owner="a", epoch=1, view=None))
    await store.logs.append(pool_id, [NewLog(level="INFO", logger="x", message="said")])
    await store.steps.save([step(run.run_id)])
    await store.results.save([Result(run_id=run.run_id)])
    await store.executions.load([execution(run.run_id)])
    await store.results.add_file(file(run.run_id))
    return run


async def rows_of(store: Store, run_id: RunId) -> dict[str, int]:
    """Count the rows of a run in each table."""
    pool_id = PoolId(run_id)
    return {
        "pools": 1 if await store.pools.find(pool_id) else 0,
        "workers": len(await store.workers.list(pool_id)),
        "events": len(await store.events.read(pool_id, 0)),
        "samples": len(await store.samples.list(pool_id)),
        "beats": len(await store.beats.list(pool_id)),
        "logs": len(await store.logs.list(pool_id)),
        "steps": len(await store.steps.list(run_id)),
        "results": len(await store.results.list(run_id)),
        "executions": await store.executions.count(run_id),
        "files": len(await store.results.list_files(run_id)),
    }


class DeleteRunsContract(Given):
    async def test_all_that_belongs_to_a_run_goes_with_it(self, store: Store) -> None:
        run = await along(store, await filled(store), *SHORTEST[RunStatus.COMPLETED])
        other = await filled(store)
        before = await rows_of(store, run.run_id)
        assert min(before.values()) > 0

        await store.runs.delete(run.run_id)

        assert await rows_of(store, run.run_id) == dict.fromkeys(before, 0)
        with pytest.raises(NotFound):
            await store.runs.get(run.run_id)
        assert await rows_of(store, other.run_id) == before

    @pytest.mark.parametrize("status", list(RunStatus))
    async def test_a_run_is_deleted_before_it_starts_or_after_it_ends(self, store: Store, status: RunStatus) -> None:
        run = await along(store, await new_run(store), *PATHS[status])
        deletable = status in RUN_ENDED or status is RunStatus.PREPARED

        with nullcontext() if deletable else pytest.raises(Refused, match=f"{run.run_id} is {status}.*stop it"):
            await store.runs.delete(run.run_id)

        assert (await store.pools.find(PoolId(run.run_id)) is None) == deletable

    async def test_a_run_with_a_live_worker_is_not_deleted(self, store: Store) -> None:
        run = await along(store, await new_run(store), RunStatus.FAILED)
        await active(store, await store.pools.get(PoolId(run.run_id)))

        with pytest.raises(Refused, match="live"):
            await store.runs.delete(run.run_id)

        assert await store.runs.get(run.run_id) == run

    async def test_deleting_a_run_again_is_harmless(self, store: Store, pool: PoolRow) -> None:
        run = await new_run(store)
        for _ in range(2):
            await store.runs.delete(run.run_id)

        await store.runs.delete(RunId(pool.pool_id))

        assert await store.pools.get(pool.pool_id) == pool


class HistoryContract(ListRunsContract, DeleteRunsContract):
    """All tests of listing and deleting runs."""
