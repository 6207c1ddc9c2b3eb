"""The id of a store. Engines use it to tell the store's workers from those of other stores, even if its URL changes."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import uuid4

from drumbeat.core.errors import StoreCorrupt
from drumbeat.core.lease import STORE_ID, Lease
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import Worker, WorkerId
from drumbeat.store.interface import Store

_FOREVER: Final = timedelta(days=36_500)
_HERE: Final = frozenset({None, "local", "runpod"})  #: engines whose workers were never named after the store's URL


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreId:
    """A store's id, and the workers that were started before the store had an id: engines find these by the store's URL."""

    value: str
    older: frozenset[tuple[PoolId, WorkerId]] = frozenset()


async def find_store_id(store: Store) -> StoreId:
    """Return the id of a store; the first process that needs it makes it.

    The id is the owner of a lease that never ends, so that all processes get the same id. A copied store has an id of its own.
    """
    lease = await store.leases.find(STORE_ID)
    if lease is None or lease.expires_at <= await store.now():
        lease = await store.leases.acquire(STORE_ID, uuid4().hex, _FOREVER) or await store.leases.find(STORE_ID)
    if lease is None:
        raise StoreCorrupt(f"expected the lease {STORE_ID} with the store's id, found none; run: drumbeat store check")
    return StoreId(value=lease.owner, older=await _older(store, lease))


async def _older(store: Store, lease: Lease) -> frozenset[tuple[PoolId, WorkerId]]:
    """Return the workers from before the store had an id that may still run. They are recorded once, so that later only their
    rows are read."""
    note = await store.notes.find(STORE_ID)
    if note is None or note.value["id"] != lease.owner:
        pools: Sequence[PoolId] = [pool.pool_id for pool in await store.pools.list()]
        rows = [row for pool_id in pools for row in await store.workers.list_unreaped(pool_id)]
        found = [[row.pool_id, row.worker_id] for row in rows if _is_older(row, lease.expires_at - _FOREVER)]
        note = await store.notes.put(STORE_ID, {"id": lease.owner, "workers": found})
    return await _unreaped(store, note.value)


async def _unreaped(store: Store, recorded: Any) -> frozenset[tuple[PoolId, WorkerId]]:
    known = {(PoolId(pool_id), WorkerId(worker_id)) for pool_id, worker_id in recorded["workers"]}
    rows = [row for pool_id in {name[0] for name in known} for row in await store.workers.list_unreaped(pool_id)]
    return frozenset(name for row in rows if (name := (row.pool_id, row.worker_id)) in known)


def _is_older(row: Worker, since: datetime) -> bool:
    engines = set((row.engine or "").split(",")) - _HERE - {""}
    return bool(engines) and row.created_at is not None and row.created_at < since
