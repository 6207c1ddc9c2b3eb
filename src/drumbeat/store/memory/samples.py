"""Samples in memory: a worker's measurements of one interval each."""

from collections.abc import Sequence
from dataclasses import fields, replace
from datetime import datetime
from typing import Any

from drumbeat.core.histogram import Histogram
from drumbeat.core.pool import PoolId
from drumbeat.core.sample import Sample, StoredSample
from drumbeat.core.worker import Worker, WorkerId
from drumbeat.store.memory.state import CompactSample, MemoryState, MemoryTable, operation, plain

_EMPTY = Histogram()
_COPIED = tuple(field.name for field in fields(Sample) if field.name not in {"age", "latency", "gpu", "extra"})


class MemorySamples(MemoryTable):
    @operation
    def append(self, pool_id: PoolId, worker_id: WorkerId, instance: str, samples: Sequence[Sample]) -> None:
        worker = self.state.own(pool_id, worker_id, instance)
        for stored in [_stored(self.state, worker, sample) for sample in samples]:
            _put(self.state, stored)

    @operation
    def list(
        self,
        pool_id: PoolId,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        worker_id: WorkerId | None = None,
        failed: bool = False,
        limit: int = 10_000,
    ) -> Sequence[StoredSample]:
        rows = self.state.pools.get(pool_id)
        chosen = [
            stored
            for stored in (rows.samples.values() if rows else ())
            if (since is None or stored.row.at > since)
            and (until is None or stored.row.at <= until)
            and worker_id in (None, stored.row.worker_id)
            and (not failed or stored.row.errors or "failed_connects" in stored.row.extra)
        ]
        chosen.sort(key=lambda stored: stored.row.at)
        return [replace(stored.row, latency=Histogram.from_bytes(stored.latency)) for stored in chosen[:limit]]


def keep_sample(state: MemoryState, worker: Worker, sample: Sample) -> None:
    """Store a worker's sample, unless a sample with its number is already stored."""
    _put(state, _stored(state, worker, sample))


def _put(state: MemoryState, stored: CompactSample) -> None:
    state.rows(stored.row.pool_id).samples.setdefault((stored.row.worker_id, stored.row.n), stored)


def _stored(state: MemoryState, worker: Worker, sample: Sample) -> CompactSample:
    copied: dict[str, Any] = {name: getattr(sample, name) for name in _COPIED}
    row = StoredSample(
        **copied,
        pool_id=worker.pool_id,
        worker_id=worker.worker_id,
        at=state.now() - sample.age,
        latency=_EMPTY,
        gpu=plain(sample.gpu),
        extra=plain(sample.extra),
    )
    return CompactSample(row=row, latency=sample.latency.to_bytes())
