"""Two more pools in the store of a fault test, whose workers have the ids of those under test: nothing there may change."""

from datetime import timedelta
from typing import Any

from drumbeat.core.event import EventType, NewEvent
from drumbeat.core.log import NewLog
from drumbeat.core.pool import PoolId, PoolKind, pool
from drumbeat.core.worker import WorkerId
from drumbeat.store import Store
from drumbeat.store.contract.given import active, sample
from drumbeat.store.contract.given_jobs import claimed, pushed

_POOLS = (PoolId("beside"), PoolId("beside-too"))
_NAMES = tuple(WorkerId(f"worker-{n}") for n in range(4))


async def add_bystanders(store: Store) -> None:
    """Workers at work, each with a job in hand, a sample, a line in the log and an event."""
    for name in _POOLS:
        home = await store.pools.create(pool(name, PoolKind.JOBS))
        await pushed(store, home, *range(len(_NAMES)))
        for worker_id in _NAMES:
            worker = await active(store, home, worker_id)
            await claimed(store, home, worker.holder, lease=timedelta(days=30))
            await store.samples.append(name, worker_id, str(worker.instance), [sample(1)])
            await store.logs.append(name, [NewLog(level="INFO", logger="l", message="at work", worker_id=worker_id)])
        await store.events.append(name, [NewEvent(type=EventType.START, payload={})])


async def bystanders(store: Store) -> list[Any]:
    """Everything that is known of them."""
    return [
        [
            await store.workers.list(name),
            await store.jobs.list(name),
            await store.samples.list(name),
            await store.logs.list(name),
            await store.events.read(name, 0),
            await store.beats.list(name),
        ]
        for name in _POOLS
    ]
