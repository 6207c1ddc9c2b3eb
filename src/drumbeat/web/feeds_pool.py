"""Live updates of a pool: queue depth, rates, workers and the last beats (passes of its control loops)."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from drumbeat.composition.plane import ControlPlane
from drumbeat.core.beat import Beat
from drumbeat.core.job import JobCounts
from drumbeat.core.pool import PoolId, PoolKind, PoolRow
from drumbeat.core.worker import Worker, shown_health, silence
from drumbeat.web.feeds import Feed, Feeds, FeedUpdate

POOL_UPDATE = "POOL_UPDATE"
_MOST_BEATS = 20
_WINDOW = 10  #: number of latest reads that rates are computed over
_MOST_COUNTED = 1_000_000


class PoolSource:
    """Reads the live updates of one pool from the store."""

    def __init__(self, plane: ControlPlane, pool_id: PoolId) -> None:
        self._store = plane.store
        self._pool_id = pool_id
        self._beats: deque[Beat] = deque(maxlen=_MOST_BEATS)
        self._counted: deque[tuple[datetime, JobCounts]] = deque(maxlen=_WINDOW)

    async def read(self) -> Sequence[FeedUpdate[Mapping[str, Any]]]:
        store, pool_id = self._store, self._pool_id
        pool = await store.pools.get(pool_id)
        now = await store.now()
        workers = await store.workers.list(pool_id, live=True)
        if pool.kind is PoolKind.JOBS:
            self._counted.append((now, await store.jobs.counts(pool_id, most=_MOST_COUNTED)))
        await self._read_beats()
        data = {
            "pool_id": pool_id,
            "kind": pool.kind,
            "timestamp": now,
            "paused_until": pool.paused_until,
            "jobs": self._jobs(now),
            "rates": self._rates(),
            "workers": [_worker(worker, now, pool) for worker in workers],
            "beats": [_beat(beat) for beat in self._beats],
        }
        return [FeedUpdate(event=POOL_UPDATE, data=data, seen=data)]

    async def catch_up(self) -> bool:
        """Do nothing and return False (no earlier data left to read): ``read`` already returns all data that is shown."""
        return False

    async def _read_beats(self) -> None:
        if not self._beats:
            last = await self._store.beats.last(self._pool_id)
            after = max((last.n if last else 0) - _MOST_BEATS, 0)
        else:
            after = self._beats[-1].n
        self._beats.extend(await self._store.beats.list(self._pool_id, after=after))

    def _jobs(self, now: datetime) -> dict[str, Any] | None:
        if not self._counted:
            return None
        counts = self._counted[-1][1]
        oldest = counts.oldest_ready
        return asdict(counts) | {"oldest_age_seconds": max((now - oldest).total_seconds(), 0.0) if oldest else None}

    def _rates(self) -> dict[str, float | None]:
        """Return how many jobs per second were done and poisoned (given up), over the last reads; None after only one read."""
        if len(self._counted) < 2:
            return {"done_per_second": None, "poisoned_per_second": None}
        (since, first), (until, last) = self._counted[0], self._counted[-1]
        seconds = (until - since).total_seconds() or 1.0
        return {
            "done_per_second": max(last.done_so_far - first.done_so_far, 0) / seconds,
            "poisoned_per_second": max(last.poisoned_so_far - first.poisoned_so_far, 0) / seconds,
        }


def _worker(worker: Worker, now: datetime, pool: PoolRow) -> dict[str, Any]:
    return {
        "worker_id": worker.worker_id,
        "status": worker.status,
        "health": shown_health(worker, now, pool.thresholds),
        "not_started": worker.not_started,
        "heartbeat_age_seconds": round(silence(worker, now).total_seconds(), 3),
        "active": worker.active,
        "operations": worker.operations,
        "errors": worker.errors,
        "cpu_percent": worker.cpu_percent,
        "memory_percent": worker.memory_percent,
    }


def _beat(beat: Beat) -> dict[str, Any]:
    return {
        "n": beat.n,
        "at": beat.at,
        "actions": [{name: action.get(name) for name in ("type", "reason", "error")} for action in beat.actions],
        "why_not": beat.why_not,
        "error": beat.error,
        "summary": dict(beat.summary),
    }


def pool_feed(feeds: Feeds, plane: ControlPlane, pool_id: PoolId) -> Feed[Mapping[str, Any]]:
    return feeds.get(f"pool {pool_id}", lambda: PoolSource(plane, pool_id))
