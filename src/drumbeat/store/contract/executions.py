"""Tests of executions: one row for each single operation of a benchmark run."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from drumbeat.core.errors import NotFound
from drumbeat.core.run import Execution, RunId
from drumbeat.store.contract.given import W1, W2, Given, new_run, unique
from drumbeat.store.interface import ExecutionOrder, ExecutionPosition, Store

BEGIN = datetime(2026, 1, 1, 12, 30, 15, 123456, tzinfo=UTC)
MORE_THAN_A_BATCH = 25_001


def execution(run_id: RunId, n: int = 1, **changed: Any) -> Execution:
    """Build the record of a worker's ``n``-th operation, which starts a microsecond after operation ``n - 1``."""
    fields: dict[str, Any] = {"worker_id": W1, "connection": 3, "kind": "POINT_LOOKUP", "duration_ms": 0.5, "ok": True}
    return Execution(run_id=run_id, n=n, **({"started_at": BEGIN + timedelta(microseconds=n)} | fields | changed))


FAILED = {
    "ok": False,
    "error_class": "DATABASE_ERROR",
    "error": "Schlüssel \\ \"'\t\n世界 🥁",
    "rows": 2**40,
    "warmup": True,
    "query_text": "SELECT\t1;\n\\.",
}


_REFUSED = {"error_class": "DATABASE_ERROR"}


def numbers(executions: Sequence[Execution]) -> list[int]:
    return [one.n for one in executions]


class ExecutionsContract(Given):
    @pytest.mark.parametrize("fields", [{}, FAILED], ids=["as it should be", "failed"])
    async def test_an_execution_comes_back_as_it_was(self, store: Store, fields: dict[str, Any]) -> None:
        one = execution((await new_run(store)).run_id, **fields)

        assert await store.executions.load([one]) == 1

        assert await store.executions.list(one.run_id) == [one]

    async def test_many_executions_are_loaded_from_an_iterator(self, store: Store) -> None:
        run_id = (await new_run(store)).run_id

        new = await store.executions.load(execution(run_id, n) for n in range(MORE_THAN_A_BATCH))

        assert new == await store.executions.count(run_id) == MORE_THAN_A_BATCH
        last = await store.executions.list(run_id, offset=MORE_THAN_A_BATCH - 2)
        assert numbers(last) == [MORE_THAN_A_BATCH - 2, MORE_THAN_A_BATCH - 1]

    async def test_reading_what_is_loaded_does_not_stop_the_event_loop(self, store: Store) -> None:
        run_id, threads = (await new_run(store)).run_id, set()

        def slowly() -> Iterator[Execution]:
            for n in range(3):
                threads.add(threading.get_ident())
                yield execution(run_id, n)

        await store.executions.load(slowly())

        assert threading.get_ident() not in threads
        assert await store.executions.count(run_id) == 3

    async def test_loading_again_passes_over_what_is_there(self, store: Store) -> None:
        run_id = (await new_run(store)).run_id
        first, second, third = (execution(run_id, n) for n in (1, 2, 3))
        await store.executions.load([first, second])

        again = [replace(second, duration_ms=99.0), third, replace(third, worker_id=W2), third]
        new = await store.executions.load(again)

        assert new == 2
        assert await store.executions.list(run_id) == [first, second, third, replace(third, worker_id=W2)]

    async def test_loading_nothing_adds_nothing(self, store: Store) -> None:
        run_id = (await new_run(store)).run_id

        assert await store.executions.load([]) == 0
        assert await store.executions.count(run_id) == 0

    async def test_executions_of_several_runs_go_each_to_its_own(self, store: Store) -> None:
        one, other = [(await new_run(store)).run_id for _ in range(2)]

        await store.executions.load([execution(one, 1), execution(other, 2), execution(one, 3)])

        assert numbers(await store.executions.list(one)) == [1, 3]
        assert await store.executions.count(other) == 1

    async def test_executions_need_a_run_and_a_batch_is_kept_whole_or_not_at_all(self, store: Store) -> None:
        run_id, nowhere = (await new_run(store)).run_id, RunId(unique("no-run"))

        with pytest.raises(NotFound, match=nowhere):
            await store.executions.load([execution(run_id), execution(nowhere)])

        assert await store.executions.count(run_id) == 0

    @pytest.mark.parametrize(
        ("filters", "expected"),
        [
            ({}, [1, 2, 3, 4, 5]),
            ({"kind": "INSERT"}, [3, 4]),
            ({"ok": False}, [2, 4]),
            ({"ok": True}, [1, 3, 5]),
            ({"worker_id": W2}, [4, 5]),
            ({"kind": "INSERT", "ok": False, "worker_id": W2}, [4]),
            ({"error_class": "DATABASE_ERROR"}, [2, 4]),
            ({"error": "40001"}, [2]),
            ({"error_class": "DATABASE_ERROR", "error": "23505", "order": "duration_ms"}, [4]),
            ({"error_class": "CONNECTION"}, []),
            ({"error_class": "", "error": ""}, []),
            ({"order": "duration_ms"}, [3, 1, 5, 4, 2]),
            ({"order": "duration_ms", "ok": True, "limit": 2}, [3, 1]),
            ({"offset": 1, "limit": 2}, [2, 3]),
            ({"order": "duration_ms", "offset": 3}, [4, 2]),
            ({"offset": 5}, []),
        ],
        ids=str,
    )
    async def test_executions_are_listed_as_asked(self, store: Store, filters: dict[str, Any], expected: list[int]) -> None:
        run_id = (await new_run(store)).run_id
        rows: dict[int, dict[str, Any]] = {
            5: {"duration_ms": 2.0, "worker_id": W2},
            3: {"duration_ms": 9.0, "kind": "INSERT"},
            1: {"duration_ms": 2.0},
            4: {"duration_ms": 1.0, "kind": "INSERT", "ok": False, "worker_id": W2, **_REFUSED, "error": "23505"},
            2: {"duration_ms": 0.5, "ok": False, **_REFUSED, "error": "40001"},
        }
        await store.executions.load(execution(run_id, n, **fields) for n, fields in rows.items())

        assert numbers(await store.executions.list(run_id, **filters)) == expected

    @pytest.mark.parametrize("order", ["started_at", "duration_ms"])
    @pytest.mark.parametrize("filters", [{}, {"kind": "INSERT"}, {"worker_id": W1}, {"ok": False}], ids=str)
    async def test_pages_that_follow_one_another_miss_nothing_and_repeat_nothing(
        self, store: Store, order: ExecutionOrder, filters: dict[str, Any]
    ) -> None:
        run_id = (await new_run(store)).run_id
        await store.executions.load(
            execution(
                run_id,
                n,
                worker_id=worker,
                duration_ms=float(n // 4) + 0.1,
                started_at=BEGIN + timedelta(n // 3),
                kind=kind,
                ok=n in (3, 4),
            )
            for n in range(12)
            for worker, kind in ((W1, "INSERT"), (W2, "INSERT" if n % 2 else "READ"))
        )
        whole = await store.executions.list(run_id, order=order, **filters)

        found: list[Execution] = []
        while page := await store.executions.list(
            run_id, order=order, after=ExecutionPosition.of(found[-1], order) if found else None, limit=5, **filters
        ):
            found += page

        assert found == whole
        after = ExecutionPosition.of(whole[3], order)
        assert await store.executions.list(run_id, order=order, after=after, offset=2, limit=3, **filters) == whole[6:9]

    async def test_executions_are_counted_by_worker(self, store: Store) -> None:
        run_id = (await new_run(store)).run_id
        await store.executions.load([execution(run_id, 1), execution(run_id, 2), execution(run_id, 1, worker_id=W2)])

        assert [await store.executions.count(run_id, worker_id=each) for each in (W1, W2, None)] == [2, 1, 3]

    async def test_a_run_nobody_made_has_no_executions(self, store: Store) -> None:
        await store.executions.load([execution((await new_run(store)).run_id)])

        assert await store.executions.list(RunId("run-nobody-made")) == []
        assert await store.executions.count(RunId("run-nobody-made")) == 0
