"""The memory store keeps the contract, and fails on command."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from drumbeat.core.clock import ManualClock
from drumbeat.core.errors import Fenced, NotFound, StoreUnavailable
from drumbeat.core.event import start
from drumbeat.core.pool import PoolId, PoolKind, PoolRow, pool
from drumbeat.store.contract import Elapse, PoolContract, StoreContract
from drumbeat.store.contract.job_steps import JobStepsContract
from drumbeat.store.contract.workflows import WorkflowContract
from drumbeat.store.interface import Store
from drumbeat.store.memory import MemoryStore


@pytest.fixture(scope="module")
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(scope="module")
async def store(clock: ManualClock) -> AsyncIterator[Store]:
    """One store for the whole contract, so that its tests are seen to bear one another's rows."""
    async with MemoryStore(clock) as store:
        yield store


@pytest.fixture
def elapse(clock: ManualClock) -> Elapse:
    return clock.advance


class TestMemoryStore(StoreContract):
    """The reference."""


class TestMemoryPool(PoolContract):
    """The reference for jobs."""


class TestMemoryWorkflows(WorkflowContract):
    """The reference for jobs that wait for other jobs."""


class TestMemoryJobSteps(JobStepsContract):
    """The reference for the steps of jobs."""


def test_no_two_contracts_have_a_test_of_one_name() -> None:
    """Else one would hide the other in the class that inherits both."""
    names = [
        name
        for whole in (StoreContract, PoolContract, WorkflowContract, JobStepsContract)
        for part in whole.__mro__
        for name in vars(part)
        if name.startswith("test_")
    ]

    assert len(names) > 100
    assert sorted(names) == sorted(set(names))


class TestFaults:
    @pytest.fixture
    def store(self) -> MemoryStore:
        return MemoryStore(ManualClock())

    @pytest.fixture
    async def bench(self, store: MemoryStore) -> PoolRow:
        return await store.pools.create(pool("p", PoolKind.BENCH))

    async def test_an_outage_refuses_everything_and_changes_nothing(self, store: MemoryStore, bench: PoolRow) -> None:
        with store.unavailable():
            with pytest.raises(StoreUnavailable):
                await store.events.append(bench.pool_id, [start(1)])
            with pytest.raises(StoreUnavailable):
                await store.leases.acquire("p", "a", timedelta(minutes=1))
            with pytest.raises(StoreUnavailable):
                await store.now()

        assert await store.events.read(bench.pool_id, 0) == []
        assert await store.leases.find("p") is None

    async def test_an_outage_ends_with_its_block_whatever_happens_in_it(self, store: MemoryStore, bench: PoolRow) -> None:
        with pytest.raises(StoreUnavailable), store.unavailable():
            await store.pools.list()

        assert await store.pools.list() == [bench]

    async def test_outages_may_overlap(self, store: MemoryStore, bench: PoolRow) -> None:
        with store.unavailable():
            with store.unavailable():
                pass
            with pytest.raises(StoreUnavailable):
                await store.pools.get(bench.pool_id)

    async def test_so_many_operations_fail_and_the_next_does_not(self, store: MemoryStore, bench: PoolRow) -> None:
        store.fail_next(2)

        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                await store.events.append(bench.pool_id, [start(1)])
        await store.events.append(bench.pool_id, [start(2)])

        assert [event.payload for event in await store.events.read(bench.pool_id, 0)] == [{"expected_workers": 2}]

    async def test_an_operation_fails_as_it_was_told_to(self, store: MemoryStore) -> None:
        store.fail_next(error=Fenced("taken"))

        with pytest.raises(Fenced, match="taken"):
            await store.pools.list()

    async def test_an_answer_may_be_lost_though_the_work_was_done(self, store: MemoryStore, bench: PoolRow) -> None:
        store.fail_next(kept=True)

        with pytest.raises(StoreUnavailable):
            await store.events.append(bench.pool_id, [start(1)])

        assert len(await store.events.read(bench.pool_id, 0)) == 1

    async def test_an_operation_that_is_refused_says_so_even_if_its_answer_was_to_be_lost(self, store: MemoryStore) -> None:
        store.fail_next(kept=True)

        with pytest.raises(NotFound):
            await store.pools.get(PoolId("nobody-made"))


async def test_the_memory_store_says_what_it_is() -> None:
    store = MemoryStore(ManualClock())

    assert (store.traits.name, store.traits.shared, store.traits.networked) == ("memory", False, False)
    assert (await store.upkeep.check()).location == "memory"


async def test_without_a_clock_the_memory_store_keeps_the_machines_time() -> None:
    store = MemoryStore()
    first = await store.now()

    assert first.utcoffset() == timedelta()
    assert first <= await store.now()
