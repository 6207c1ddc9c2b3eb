"""Tests of results: the totals of a run, one row for each worker and kind of operation."""

from dataclasses import replace

import pytest

from drumbeat.core.errors import Fenced, NotFound
from drumbeat.core.histogram import Histogram
from drumbeat.core.lease import Lease
from drumbeat.core.pool import PoolRow
from drumbeat.core.run import ExecutionFile, Result, RunId, RunStatus
from drumbeat.store.contract.given import AWKWARD, W1, W2, Given, new_run, outdated, unique
from drumbeat.store.interface import Store


def result(run_id: RunId, **fields: object) -> Result:
    latency = Histogram()
    latency.record_all([1_000_000, 2_000_000, 50_000_000])
    return Result(run_id=run_id, operations=3, reads=2, writes=1, latency=latency, **fields)  # type: ignore[arg-type]


def file(run_id: RunId, path: str = "/a/00000.parquet") -> ExecutionFile:
    return ExecutionFile(run_id=run_id, worker_id=W1, path=path, host="here", rows=10, size=1000)


class ResultsContract(Given):
    async def test_a_result_comes_back_as_it_was_saved(self, store: Store) -> None:
        run = await new_run(store)
        saved = result(run.run_id, worker_id=W1, connections=5, qps=1.5, custom_metrics=AWKWARD, find_max_result={"max": 7})

        await store.results.save([saved])

        assert await store.results.list(run.run_id) == [saved]

    async def test_a_later_result_takes_the_place_of_an_earlier_one(self, store: Store) -> None:
        run = await new_run(store)
        first = result(run.run_id, worker_id=W1)
        await store.results.save([first])

        final = replace(first, status=RunStatus.COMPLETED, operations=9)
        await store.results.save([final])

        assert await store.results.list(run.run_id) == [final]

    async def test_results_are_listed_whole_run_first_then_by_worker_and_kind(self, store: Store) -> None:
        run = await new_run(store)
        who = [(W2, None), (W1, "UPDATE"), (W1, None), (None, None), (None, "INSERT")]
        await store.results.save([result(run.run_id, worker_id=worker, kind=kind) for worker, kind in who])

        listed = [(each.worker_id, each.kind) for each in await store.results.list(run.run_id)]

        assert listed == [(None, None), (None, "INSERT"), (W1, None), (W1, "UPDATE"), (W2, None)]

    async def test_results_need_a_run_and_are_saved_all_or_none(self, store: Store) -> None:
        run = await new_run(store)

        with pytest.raises(NotFound):
            await store.results.save([result(run.run_id), result(RunId(unique("no-run")))])

        assert await store.results.list(run.run_id) == []

    async def test_an_outdated_controller_saves_no_result(self, store: Store, pool: PoolRow, lease: Lease) -> None:
        run = await new_run(store)
        fence = await outdated(store, lease)

        with pytest.raises(Fenced):
            await store.results.save([result(run.run_id)], fence=fence)

        assert await store.results.list(run.run_id) == []

    async def test_a_file_is_noted_once(self, store: Store) -> None:
        run = await new_run(store)
        for _ in range(2):
            await store.results.add_file(file(run.run_id))
        await store.results.add_file(file(run.run_id, "/a/00001.parquet"))

        files = await store.results.list_files(run.run_id)

        assert files == [file(run.run_id), file(run.run_id, "/a/00001.parquet")]

    async def test_a_file_needs_a_run(self, store: Store, pool: PoolRow) -> None:
        for nowhere in (RunId(unique("no-run")), RunId(pool.pool_id)):
            with pytest.raises(NotFound, match=nowhere):
                await store.results.add_file(file(nowhere))

            assert await store.results.list_files(nowhere) == []
