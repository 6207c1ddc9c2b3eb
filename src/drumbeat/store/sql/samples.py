"""SQL table ``samples``: what each worker measured in each interval."""

from collections.abc import Sequence
from datetime import datetime

from drumbeat.core.pool import PoolId
from drumbeat.core.sample import Sample, StoredSample
from drumbeat.core.worker import WorkerId
from drumbeat.store.sql.database import Database, Script
from drumbeat.store.sql.membership import check_member
from drumbeat.store.sql.rows import at_us, sample_of, sample_values


class SqlSamples:
    """Stores and lists samples: the counts and latencies that a worker measured in one interval."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def append(self, pool_id: PoolId, worker_id: WorkerId, instance: str, samples: Sequence[Sample]) -> None:
        await self._database.transact(_append_samples(pool_id, worker_id, instance, samples))

    async def list(
        self,
        pool_id: PoolId,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        worker_id: WorkerId | None = None,
        failed: bool = False,
        limit: int = 10_000,
    ) -> Sequence[StoredSample]:
        span = {"since": at_us(since), "until": at_us(until)}
        values = {"pool_id": pool_id, "worker_id": worker_id, "failed": int(failed), "limit": limit} | span
        return [sample_of(row) for row in await self._database.read("list_samples", values)]


def _append_samples(pool_id: PoolId, worker_id: WorkerId, instance: str, samples: Sequence[Sample]) -> Script[None]:
    yield from check_member(pool_id, worker_id, instance)
    for sample in samples:
        yield "add_sample", {"pool_id": pool_id, "worker_id": worker_id} | sample_values(sample)
