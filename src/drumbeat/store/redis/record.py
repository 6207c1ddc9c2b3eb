"""Beats, samples and log lines in Redis. Memory is expensive, so only the newest of each pool are kept."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from drumbeat.core.beat import Beat, NewBeat
from drumbeat.core.lease import Fence
from drumbeat.core.log import Log, NewLog, log_rank
from drumbeat.core.pool import PoolId
from drumbeat.core.sample import Sample, StoredSample
from drumbeat.core.worker import WorkerId
from drumbeat.store.interface.record import MOST_SEARCHED
from drumbeat.store.redis.database import Argument, RedisDatabase
from drumbeat.store.redis.rows import (
    at_us,
    beat_body,
    beat_from,
    beat_of,
    fence_arguments,
    log_body,
    log_of,
    sample_arguments,
    sample_of,
    to_us,
)

_PAGE = 100  #: beats searched per script call, so that other clients are served in between
KEPT = 10_000  #: at least this many samples, log lines and beats of a pool are kept; older ones are deleted


class RedisBeats:
    def __init__(self, database: RedisDatabase) -> None:
        self._database = database

    async def append(self, pool_id: PoolId, beat: NewBeat, *, fence: Fence | None = None) -> Beat:
        body = beat_body(beat)
        n, at = await self._database.run("beat_append", *fence_arguments(fence), pool_id, body, KEPT)
        return beat_from(pool_id, n, at, body)

    async def list(
        self, pool_id: PoolId, *, since: datetime | None = None, after: int = 0, limit: int = 1000
    ) -> Sequence[Beat]:
        entries = await self._database.run("beat_list", pool_id, after, at_us(since), limit)
        return [beat_of(pool_id, entry) for entry in entries]

    async def with_actions(
        self, pool_id: PoolId, *, since: datetime | None = None, limit: int = 1000, among: int = MOST_SEARCHED
    ) -> Sequence[Beat]:
        found: list[Beat] = []
        last: bytes | None = b"+"
        while last is not None and among > 0 and len(found) < limit:
            page = min(among, _PAGE)
            arguments = (pool_id, at_us(since), limit - len(found), page, last)
            entries, *more = await self._database.run("beat_with_actions", *arguments)
            found += (replace(beat_of(pool_id, entry), view=None) for entry in entries)
            last, among = more[0] if more else None, among - page
        return found[::-1]

    async def last(self, pool_id: PoolId, *, before: datetime | None = None, seen: bool = False) -> Beat | None:
        entries = await self._database.run("beat_last", pool_id, at_us(before), int(seen))
        return beat_of(pool_id, entries[0]) if entries else None


class RedisSamples:
    def __init__(self, database: RedisDatabase) -> None:
        self._database = database

    async def append(self, pool_id: PoolId, worker_id: WorkerId, instance: str, samples: Sequence[Sample]) -> None:
        arguments = [argument for sample in samples for argument in sample_arguments(sample)]
        await self._database.run("sample_append", pool_id, worker_id, instance, KEPT, *arguments)

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
        between = ("-inf" if since is None else f"({at_us(since)}", "+inf" if until is None else at_us(until))
        rows = await self._database.run("sample_list", pool_id, *between, worker_id, int(failed), limit)
        return [sample_of(pool_id, *row) for row in rows]


class RedisLogs:
    def __init__(self, database: RedisDatabase) -> None:
        self._database = database

    async def append(self, pool_id: PoolId, entries: Sequence[NewLog]) -> None:
        arguments: list[Argument] = []
        for entry in entries:
            arguments += [to_us(entry.age), entry.worker_id, log_rank(entry.level), log_body(entry)]
        await self._database.run("log_append", pool_id, KEPT, *arguments)

    async def list(
        self,
        pool_id: PoolId,
        *,
        after: int = 0,
        worker_id: WorkerId | None = None,
        level: str | None = None,
        limit: int = 1000,
    ) -> Sequence[Log]:
        least = log_rank(level) if level else 0
        entries = await self._database.run("log_list", pool_id, after, worker_id, least, limit)
        return [log_of(pool_id, entry) for entry in entries]
