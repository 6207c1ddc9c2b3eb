"""Tests that every spawner must pass, and tests for spawners with certain traits.

A spawner's test class inherits ``SpawnerContract`` and the contracts of its traits, so that no test is skipped.
"""

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import ClassVar, Protocol

import pytest

from drumbeat.core.clock import SystemClock
from drumbeat.core.errors import SpawnError, SpawnFailed
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.interface import ExpandsVolumes, Instance, InstanceState, ListsPools, Order, ReadsLogs, Spawner

POOL = PoolId("contract-pool")
OTHER_POOL = PoolId("contract-other-pool")
ANN, BOB = WorkerId("ann"), WorkerId("bob")
UNKNOWN = WorkerId("nobody-by-that-name")


class OrderFactory(Protocol):
    """Creates an order (a request to start a worker). The worker runs until it is drained, and then exits with code 0."""

    def __call__(self, worker_id: WorkerId, pool_id: PoolId, *, exits: int | None = None, startable: bool = True) -> Order:
        """Create an order. ``exits``: the worker exits by itself with this code. ``startable=False``: it cannot be started."""
        ...


class Watching:
    """A base class of all contracts, with methods that wait until the instances of a spawner reach a state."""

    timeout: ClassVar[timedelta] = timedelta(seconds=60)  #: how long an instance may take to start, to exit or to be listed
    interval: ClassVar[timedelta] = timedelta(milliseconds=20)  #: time between two calls of ``list``

    async def running(self, spawner: Spawner, ordered: Order) -> None:
        """Start the ordered worker and wait until its instance runs."""
        await spawner.spawn(ordered)
        runs = (ordered.worker_id, InstanceState.RUNNING)
        await self.until(spawner, lambda instances: runs in {(one.worker_id, one.state) for one in instances}, ordered.pool_id)

    async def until(
        self, spawner: Spawner, condition: Callable[[Sequence[Instance]], bool], pool_id: PoolId = POOL
    ) -> Sequence[Instance]:
        """List the pool's instances again and again until the condition holds. Fails after the time limit ``timeout``."""
        clock = SystemClock()
        deadline = clock.elapsed() + self.timeout
        while not condition(instances := await spawner.list(pool_id)):
            assert clock.elapsed() < deadline, f"the condition does not hold after {self.timeout}: {instances}"
            await clock.sleep(self.interval)
        return instances


class SpawnerContract(Watching):
    """One test for each promise of the ``Spawner`` interface."""

    async def test_every_declared_trait_has_its_contract_here(self, spawner: Spawner) -> None:
        traits = spawner.traits

        assert isinstance(self, ExitCodeContract) == traits.reports_exit_codes
        assert isinstance(self, PoolListContract) == isinstance(spawner, ListsPools)
        assert isinstance(self, VolumeContract) == traits.expands_volumes
        assert isinstance(spawner, ReadsLogs) == traits.reports_logs
        assert traits.name
        assert traits.billing_granule > timedelta()
        assert traits.price_per_hour >= 0

    async def test_spawn_answers_with_the_instance_that_was_ordered(self, spawner: Spawner, order: OrderFactory) -> None:
        instance = await spawner.spawn(order(ANN, POOL))

        assert (instance.pool_id, instance.worker_id) == (POOL, ANN)
        assert instance.ref
        assert instance.state in {InstanceState.PENDING, InstanceState.RUNNING}
        assert instance.exit_code is None

    async def test_a_spawned_instance_is_listed_and_comes_to_run(self, spawner: Spawner, order: OrderFactory) -> None:
        ann = await spawner.spawn(order(ANN, POOL))
        bob = await spawner.spawn(order(BOB, POOL))

        listed = await self.until(spawner, lambda instances: all(one.state is InstanceState.RUNNING for one in instances))

        assert {(one.worker_id, one.ref) for one in listed} == {(ANN, ann.ref), (BOB, bob.ref)}
        assert all(one.started_at is not None and one.started_at.tzinfo is not None for one in listed)

    async def test_spawning_twice_is_spawning_once(self, spawner: Spawner, order: OrderFactory) -> None:
        first = await spawner.spawn(order(ANN, POOL))
        second = await spawner.spawn(order(ANN, POOL))

        assert second.ref == first.ref
        assert [one.ref for one in await spawner.list(POOL)] == [first.ref]

    async def test_spawning_at_once_from_all_sides_is_spawning_once(self, spawner: Spawner, order: OrderFactory) -> None:
        answers = await asyncio.gather(*(spawner.spawn(order(ANN, POOL)) for _ in range(8)))

        assert len({one.ref for one in answers}) == 1
        assert len(await spawner.list(POOL)) == 1

    async def test_what_cannot_be_started_fails_and_leaves_nothing(self, spawner: Spawner, order: OrderFactory) -> None:
        with pytest.raises(SpawnFailed, match=ANN):
            await spawner.spawn(order(ANN, POOL, startable=False))

        assert alive(await spawner.list(POOL)) == []

    async def test_a_name_that_failed_to_start_can_be_spawned_later(self, spawner: Spawner, order: OrderFactory) -> None:
        with pytest.raises(SpawnFailed):
            await spawner.spawn(order(ANN, POOL, startable=False))

        instance = await spawner.spawn(order(ANN, POOL))

        assert alive(await spawner.list(POOL)) == [instance.worker_id]

    async def test_a_pool_nobody_spawned_in_is_empty(self, spawner: Spawner) -> None:
        assert list(await spawner.list(PoolId("contract-empty-pool"))) == []

    async def test_pools_do_not_see_each_other(self, spawner: Spawner, order: OrderFactory) -> None:
        here = await spawner.spawn(order(ANN, POOL))
        there = await spawner.spawn(order(ANN, OTHER_POOL))

        assert here.ref != there.ref
        assert [one.ref for one in await spawner.list(POOL)] == [here.ref]
        assert [one.ref for one in await spawner.list(OTHER_POOL)] == [there.ref]

    async def test_ending_a_worker_leaves_its_namesake_of_another_pool(self, spawner: Spawner, order: OrderFactory) -> None:
        await spawner.spawn(order(ANN, POOL))
        await spawner.spawn(order(ANN, OTHER_POOL))

        await spawner.terminate(POOL, ANN)

        assert alive(await spawner.list(POOL)) == []
        assert alive(await spawner.list(OTHER_POOL)) == [ANN]

    async def test_drain_lets_it_finish_and_leave(self, spawner: Spawner, order: OrderFactory) -> None:
        await self.running(spawner, order(ANN, POOL))
        await self.running(spawner, order(BOB, POOL))

        await spawner.drain(POOL, ANN)

        listed = await self.until(spawner, lambda instances: alive(instances) == [BOB])
        if spawner.traits.reports_exit_codes and spawner.traits.keeps_drained:
            assert [one.exit_code for one in listed if one.worker_id == ANN] == [0]

    async def test_draining_twice_is_harmless(self, spawner: Spawner, order: OrderFactory) -> None:
        await self.running(spawner, order(ANN, POOL))

        await spawner.drain(POOL, ANN)
        await spawner.drain(POOL, ANN)
        await self.until(spawner, lambda instances: alive(instances) == [])
        await spawner.drain(POOL, ANN)

    async def test_after_terminate_it_is_gone(self, spawner: Spawner, order: OrderFactory) -> None:
        await spawner.spawn(order(ANN, POOL))
        await spawner.spawn(order(BOB, POOL))

        await spawner.terminate(POOL, ANN)

        assert alive(await spawner.list(POOL)) == [BOB]

    async def test_terminating_twice_is_harmless(self, spawner: Spawner, order: OrderFactory) -> None:
        await spawner.spawn(order(ANN, POOL))
        assert alive(await spawner.list(POOL)) == [ANN]

        await spawner.terminate(POOL, ANN)
        await spawner.terminate(POOL, ANN)

        assert alive(await spawner.list(POOL)) == []

    async def test_unknown_names_are_harmless(self, spawner: Spawner, order: OrderFactory) -> None:
        await spawner.spawn(order(ANN, POOL))

        await spawner.drain(POOL, UNKNOWN)
        await spawner.terminate(POOL, UNKNOWN)
        await spawner.terminate(PoolId("contract-unknown-pool"), ANN)
        for impossible in (WorkerId("a/b c"), WorkerId(".."), WorkerId("w" * 300)):
            await spawner.drain(POOL, impossible)
            await spawner.terminate(POOL, impossible)

        assert [one.worker_id for one in await spawner.list(POOL)] == [ANN]
        assert alive(await spawner.list(POOL)) == [ANN]


class ExitCodeContract(Watching):
    """Tests for spawners that declare ``reports_exit_codes``."""

    async def test_the_exit_code_of_one_that_left_is_told(self, spawner: Spawner, order: OrderFactory) -> None:
        await spawner.spawn(order(ANN, POOL, exits=3))

        [ann] = await self.until(spawner, lambda instances: alive(instances) == [])

        assert (ann.state, ann.exit_code) == (InstanceState.EXITED, 3)


class PoolListContract(Watching):
    """Tests for spawners that implement ``ListsPools``."""

    async def test_the_pools_of_which_something_runs_are_named(self, spawner: Spawner, order: OrderFactory) -> None:
        assert isinstance(spawner, ListsPools)
        for pool_id in (POOL, OTHER_POOL):
            await spawner.spawn(order(ANN, pool_id))
        both = await spawner.pools()

        await spawner.terminate(OTHER_POOL, ANN)

        assert (both, await spawner.pools()) == ({POOL, OTHER_POOL}, {POOL})


class VolumeContract(Watching):
    """Tests for spawners that declare ``expands_volumes``."""

    async def test_a_volume_grows_to_the_size_asked_for_and_never_shrinks(self, spawner: Spawner, volume: str) -> None:
        assert isinstance(spawner, ExpandsVolumes)

        assert [await spawner.expand_volume(volume, size, 100) for size in (150, 150, 120)] == [150, 150, 150]

    async def test_a_volume_far_smaller_than_what_is_seen_is_not_expanded(self, spawner: Spawner, volume: str) -> None:
        assert isinstance(spawner, ExpandsVolumes)

        with pytest.raises(SpawnError, match="they see 800"):
            await spawner.expand_volume(volume, 850, 800)

        assert await spawner.expand_volume(volume, 158, 107.4) == 158, "100 GB of 1024³ bytes"

    async def test_a_volume_there_is_not_is_refused(self, spawner: Spawner) -> None:
        assert isinstance(spawner, ExpandsVolumes)

        with pytest.raises(SpawnError, match="nobody-by-that-name"):
            await spawner.expand_volume(UNKNOWN, 150, 100)


def alive(instances: Sequence[Instance]) -> list[WorkerId]:
    """Return the workers of all pending and running instances."""
    return sorted(one.worker_id for one in instances if one.state is not InstanceState.EXITED)
