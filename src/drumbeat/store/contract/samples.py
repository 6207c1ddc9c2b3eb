"""Tests of samples: a worker's measurements of one interval each."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from drumbeat.core.histogram import Histogram, merged
from drumbeat.core.pool import PoolId, PoolRow
from drumbeat.core.sample import Sample
from drumbeat.core.worker import Worker
from drumbeat.store.contract.given import AWKWARD, MINUTE, SECOND, W1, W2, Elapse, Given, active, heartbeat, joined, sample
from drumbeat.store.interface import Store


async def append(store: Store, worker: Worker, *samples: Sample) -> None:
    await store.samples.append(worker.pool_id, worker.worker_id, worker.instance or "", samples)


class SamplesContract(Given):
    @pytest.mark.parametrize("by_heartbeat", [True, False], ids=["with a heartbeat", "afterwards"])
    async def test_a_sample_comes_back_as_it_was(self, store: Store, pool: PoolRow, by_heartbeat: bool) -> None:
        measured: dict[str, Any] = {
            "phase": "MEASUREMENT",
            "reads": 2,
            "writes": 1,
            "errors": 4,
            "active": 18,
            "target": 20,
            "cpu_percent": 12.5,
            "memory_percent": 40.25,
            "gpu": AWKWARD,
            "extra": AWKWARD,
        }
        given = replace(sample(7, 1_000, 2_000_000, 3_600_000_000_000, **measured), interval=timedelta(milliseconds=1250))
        worker = await joined(store, pool)
        before = await store.now()

        await (store.membership.beat(heartbeat(worker, sample=given)) if by_heartbeat else append(store, worker, given))

        [stored] = await store.samples.list(pool.pool_id)
        assert before <= stored.at <= await store.now()
        assert (stored.pool_id, stored.worker_id, stored.n, stored.interval) == (pool.pool_id, W1, 7, given.interval)
        assert (stored.operations, stored.qps) == (3, 2.4)
        assert {name: getattr(stored, name) for name in measured} == measured
        assert stored.latency == given.latency

    async def test_an_idle_interval_comes_back_as_one(self, store: Store, pool: PoolRow) -> None:
        await append(store, await joined(store, pool), sample(1))

        [stored] = await store.samples.list(pool.pool_id)

        assert stored.latency == Histogram()
        assert (stored.operations, stored.phase, stored.cpu_percent, stored.gpu, stored.extra) == (0, None, None, None, {})

    async def test_what_is_measured_later_does_not_change_what_was_kept(self, store: Store, pool: PoolRow) -> None:
        given = sample(1, 10)
        await append(store, await joined(store, pool), given)

        given.latency.record(20)

        [stored] = await store.samples.list(pool.pool_id)
        assert stored.latency.count == 1

    async def test_workers_histograms_merge_to_the_whole(self, store: Store, pool: PoolRow) -> None:
        for slot, name in enumerate((W1, W2)):
            worker = await joined(store, pool, name, slot)
            await append(store, worker, sample(1, *range(slot, 2_000_000, 9_999)), sample(2, 5, 50_000))

        stored = await store.samples.list(pool.pool_id)

        whole = sample(1, *range(0, 2_000_000, 9_999), *range(1, 2_000_000, 9_999), 5, 50_000, 5, 50_000)
        assert merged(one.latency for one in stored) == whole.latency

    async def test_a_sample_that_is_there_already_is_passed_over(self, store: Store, pool: PoolRow) -> None:
        worker = await active(store, pool)
        await append(store, worker, sample(1, 10), sample(2, 10))
        await append(store, worker, sample(2, 10, 20, 30), sample(3, 10))

        stored = await store.samples.list(pool.pool_id)

        assert sorted((one.n, one.operations) for one in stored) == [(1, 1), (2, 1), (3, 1)]

    async def test_two_workers_may_have_samples_of_one_number(self, store: Store, pool: PoolRow) -> None:
        for name in (W1, W2):
            await append(store, await joined(store, pool, name), sample(1, 10))

        assert {one.worker_id for one in await store.samples.list(pool.pool_id)} == {W1, W2}

    async def test_appending_no_samples_adds_nothing(self, store: Store, pool: PoolRow) -> None:
        await append(store, await joined(store, pool))

        assert await store.samples.list(pool.pool_id) == []

    async def test_a_sample_sent_late_has_the_time_it_was_measured(self, store: Store, pool: PoolRow) -> None:
        before = await store.now()
        await append(store, await joined(store, pool), sample(1, age=20 * SECOND))

        [stored] = await store.samples.list(pool.pool_id)

        assert before - 20 * SECOND <= stored.at <= await store.now() - 20 * SECOND

    async def test_samples_are_listed_oldest_first(self, store: Store, pool: PoolRow) -> None:
        ages = [5, 30, 0, 12]
        await append(store, await joined(store, pool), *(sample(n, age=age * SECOND) for n, age in enumerate(ages)))

        assert [one.n for one in await store.samples.list(pool.pool_id)] == [1, 3, 0, 2]
        assert [one.n for one in await store.samples.list(pool.pool_id, limit=2)] == [1, 3]

    async def test_samples_are_listed_since_a_time(self, store: Store, pool: PoolRow, elapse: Elapse) -> None:
        worker = await joined(store, pool)
        await append(store, worker, sample(1))
        await elapse(5 * MINUTE)
        await append(store, worker, sample(2), sample(3, age=3 * MINUTE))

        listed = await store.samples.list(pool.pool_id, since=await store.now() - MINUTE)

        assert [one.n for one in listed] == [2]

    async def test_samples_are_listed_until_a_time(self, store: Store, pool: PoolRow) -> None:
        await append(store, await joined(store, pool), *(sample(n, age=n * MINUTE) for n in range(4)))
        [moment] = [one.at for one in await store.samples.list(pool.pool_id) if one.n == 1]

        listed = await store.samples.list(pool.pool_id, until=moment)
        within = await store.samples.list(pool.pool_id, since=moment - MINUTE / 2, until=moment)

        assert [one.n for one in listed] == [3, 2, 1]
        assert [one.n for one in within] == [1]

    async def test_samples_are_listed_by_worker(self, store: Store, pool: PoolRow) -> None:
        for name in (W1, W2):
            await append(store, await joined(store, pool, name), sample(1))

        assert [one.worker_id for one in await store.samples.list(pool.pool_id, worker_id=W2)] == [W2]

    async def test_samples_that_count_errors_are_listed_alone(self, store: Store, pool: PoolRow) -> None:
        worker, extra = await joined(store, pool), {"kinds": {"a": {"errors": 0}, "b": {"errors": 7}}}
        await append(store, worker, *(sample(n, age=(9 - n) * SECOND, errors=n % 3, extra=extra) for n in range(9)))

        listed = await store.samples.list(pool.pool_id, failed=True)
        first = await store.samples.list(pool.pool_id, failed=True, limit=2)

        assert [one.n for one in listed] == [1, 2, 4, 5, 7, 8]
        assert [one.n for one in first] == [1, 2]

    async def test_samples_that_count_failed_connects_are_listed_with_those_that_count_errors(
        self, store: Store, pool: PoolRow
    ) -> None:
        worker, extra = await joined(store, pool), {"kinds": {"a": {"errors": 0}}, "failed_connects": 7}
        await append(
            store, worker, sample(1, age=3 * SECOND), sample(2, age=2 * SECOND, extra=extra), sample(3, age=SECOND, errors=1)
        )

        assert [one.n for one in await store.samples.list(pool.pool_id, failed=True)] == [2, 3]

    async def test_a_pool_nobody_made_has_no_samples(self, store: Store) -> None:
        assert await store.samples.list(PoolId("pool-nobody-made")) == []
