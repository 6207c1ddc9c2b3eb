"""The lease to run a job alone, which one worker of a pool has at a time."""

from datetime import timedelta
from unittest.mock import AsyncMock

import pytest

from drumbeat.core.clock import ManualClock
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import Holder, WorkerId
from drumbeat.pool.worker.claims import Claims
from drumbeat.store.memory import MemoryStore

MINUTE = timedelta(minutes=1)


def claims(store: MemoryStore, pool_id: str, worker_id: str = "w") -> Claims:
    return Claims(
        queue=store.queue,
        jobs=AsyncMock(wait_alone=AsyncMock(return_value=True)),
        steps=store.job_steps,
        workers=store.workers,
        leases=store.leases,
        pool_id=PoolId(pool_id),
        holder=Holder(pool_id=PoolId(pool_id), worker_id=WorkerId(worker_id)),
        lease=MINUTE,
    )


@pytest.mark.parametrize("pool_id", ["schedules", "template", "after-exit"])
async def test_a_lease_of_a_pool_named_alone_keeps_no_other_pool_from_trying_a_suspect(pool_id: str) -> None:
    """Those leases are named by what they are for and a pool: schedules/alone is that of the pool ``alone``."""
    store = MemoryStore(ManualClock())
    await store.leases.acquire(f"{pool_id}/alone", "another process", MINUTE)

    assert await claims(store, pool_id).acquire_alone_lease()
    assert not await claims(store, pool_id, "w2").acquire_alone_lease()
