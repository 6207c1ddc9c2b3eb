"""What a look at a pool tells of instances of which rows do not know."""

from collections.abc import Sequence
from datetime import timedelta

import pytest

from drumbeat.core.clock import ManualClock
from drumbeat.core.pool import PoolId, PoolKind, pool
from drumbeat.core.recovery import recover
from drumbeat.core.worker import Worker, WorkerId, WorkerStatus
from drumbeat.runtime.snapshot import take_snapshot, unrecorded_instances
from drumbeat.spawn.fake import FakeSpawner
from drumbeat.spawn.interface import Instance, InstanceState, Order
from drumbeat.store.memory import MemoryStore

POOL, W0 = PoolId("p"), WorkerId("worker-0")


@pytest.mark.parametrize(
    ("status", "known", "state", "expected"),
    [
        (WorkerStatus.SPAWNING, None, InstanceState.RUNNING, {W0: "pod-7"}),
        (WorkerStatus.SPAWNING, "", InstanceState.PENDING, {W0: "pod-7"}),
        (WorkerStatus.SPAWNING, "pod-6", InstanceState.RUNNING, {}),
        (WorkerStatus.SPAWNING, None, InstanceState.EXITED, {}),
        (WorkerStatus.ACTIVE, None, InstanceState.RUNNING, {}),
    ],
    ids=["running", "pending", "its row knows one", "over", "has joined"],
)
def test_an_instance_is_unnoted_while_its_worker_has_not_joined_and_its_row_names_none(
    status: WorkerStatus, known: str | None, state: InstanceState, expected: dict[WorkerId, str]
) -> None:
    row = Worker(pool_id=POOL, worker_id=W0, slot=0, status=status, provider_ref=known)
    instance = Instance(pool_id=POOL, worker_id=W0, ref="pod-7", state=state)
    stray = Instance(pool_id=POOL, worker_id=WorkerId("stray"), ref="pod-8", state=state)

    assert unrecorded_instances([row], [stray, instance]) == expected


class Rival(FakeSpawner):
    """Another controller makes a worker, its row first, whenever the instances are listed."""

    def __init__(self, store: MemoryStore, clock: ManualClock) -> None:
        super().__init__(clock)
        self._store = store

    async def list(self, pool_id: PoolId) -> Sequence[Instance]:
        await self._store.workers.add([Worker(pool_id=pool_id, worker_id=W0, slot=0)])
        await self.spawn(Order(pool_id=pool_id, worker_id=W0, slot=0, group_count=1))
        return await super().list(pool_id)


async def test_a_worker_that_another_makes_during_the_look_is_not_taken_for_a_stray(
    store: MemoryStore, clock: ManualClock
) -> None:
    made = await store.pools.create(pool(POOL, PoolKind.FLEET))

    async with Rival(store, clock) as spawner:
        seen = await take_snapshot(store, spawner, made, timedelta(), clock=clock)

    assert [each.worker_id for each in seen.instances] == [W0]
    assert recover(seen).actions == ()
