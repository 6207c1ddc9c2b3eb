"""Samples, in memory."""

from collections.abc import Sequence
from dataclasses import fields, replace
from datetime import datetime
from typing import Any

from drumbeat.core.histogram import Histogram
from drumbeat.core.pool import PoolId
from drumbeat.core.sample import Sample, StoredSample
from drumbeat.core.worker import Worker, WorkerId
from drumbeat.store.memory.state import CompactSample, MemoryState, MemoryTable, operation, plain

_NOTHING = Histogram()
_AS_GIVEN = tuple(field.name for field in fields(Sample) if field.name not in {"age", "latency", "gpu", "extra"})


class MemorySamples(MemoryTable):
    @operation
    def append(self, pool_id: PoolId, worker_id: WorkerId, instance: str, samples: Sequence[Sample]) -> None:
        worker = self.state.own(pool_id, worker_id, instance)
        kept = [_kept(self.state, worker, sample) for sample in samples]
        for sample in kept:
            _put(self.state, sample)

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
            kept
            for kept in (rows.samples.values() if rows else ())
            if (since is None or kept.row.at > since)
            and (until is None or kept.row.at <= until)
            and worker_id in (None, kept.row.worker_id)
            and (kept.row.errors or not failed)
        ]
        chosen.sort(key=lambda kept: kept.row.at)
        return [replace(kept.row, latency=Histogram.from_bytes(kept.latency)) for kept in chosen[:limit]]


def keep_sample(state: MemoryState, worker: Worker, sample: Sample) -> None:
    """Keep what a worker measured, unless it is there already."""
    _put(state, _kept(state, worker, sample))


def _put(state: MemoryState, kept: CompactSample) -> None:
    state.rows(kept.row.pool_id).samples.setdefault((kept.row.worker_id, kept.row.n), kept)


def _kept(state: MemoryState, worker: Worker, sample: Sample) -> CompactSample:
    as_given: dict[str, Any] = {name: getattr(sample, name) for name in _AS_GIVEN}
    row = StoredSample(
        **as_given,
        pool_id=worker.pool_id,
        worker_id=worker.worker_id,
        at=state.now() - sample.age,
        latency=_NOTHING,
        gpu=plain(sample.gpu),
        extra=plain(sample.extra),
    )
    return CompactSample(row=row, latency=sample.latency.to_bytes())
