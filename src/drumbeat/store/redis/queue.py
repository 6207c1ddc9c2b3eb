"""The job queue in Redis: each push, claim or report of outcomes is one script call, for any number of jobs."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from drumbeat.core.job import Job, JobId, JobOutcome, NewJob, Token
from drumbeat.core.lease import Fence
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import Holder
from drumbeat.store.flow_rules import has_links, parents_first
from drumbeat.store.interface import ClaimRequest, RenewResult, SettleResult
from drumbeat.store.job_ids import job_ids_of
from drumbeat.store.redis.database import RedisDatabase
from drumbeat.store.redis.job_rows import (
    are_plain,
    claiming_arguments,
    holder_argument,
    jobs_of,
    plain_arguments,
    push_arguments,
    token_arguments,
    verdict_arguments,
)
from drumbeat.store.redis.rows import fence_arguments, to_us


@dataclass(frozen=True, slots=True, kw_only=True)
class _EmptyQueue:
    """The state of a pool's queue when a claim found too few jobs; ``wait`` needs it to notice jobs that were pushed later."""

    news: bytes  #: id of the last entry in the pool's stream ``news``, at that claim
    due: float | None  #: when the next delayed job becomes ready, by the event loop's clock


class RedisQueue:
    def __init__(self, database: RedisDatabase) -> None:
        self._database = database
        self._empty: dict[PoolId, _EmptyQueue] = {}

    async def push(self, pool_id: PoolId, jobs: Sequence[NewJob]) -> Sequence[JobId]:
        if jobs and are_plain(jobs):
            before = await self._database.run("queue_push_plain", pool_id, *plain_arguments(jobs))
            return job_ids_of(range(before + 1, before + 1 + len(jobs)))
        order = parents_first(jobs) if has_links(jobs) else range(len(jobs))
        found = await self._database.run("queue_push", pool_id, push_arguments([jobs[place] for place in order]))
        ids = {place: JobId(job_id.decode()) for place, job_id in zip(order, found, strict=True)}
        return [ids[place] for place in range(len(jobs))]

    async def claim(self, claiming: ClaimRequest) -> Sequence[Job]:
        return self._claimed(claiming.pool_id, *await self._database.run("queue_claim", *claiming_arguments(claiming)))

    async def settle(
        self, holder: Holder, verdicts: Sequence[JobOutcome], claiming: ClaimRequest | None = None
    ) -> SettleResult:
        more = claiming_arguments(claiming) if claiming else (None,)
        stale, *claimed = await self._database.run("queue_settle", holder_argument(holder), verdict_arguments(verdicts), *more)
        jobs = self._claimed(claiming.pool_id, *claimed) if claiming else []
        return SettleResult(stale=tuple(verdicts[n].token for n in stale), claimed=tuple(jobs))

    async def renew(self, holder: Holder, tokens: Sequence[Token], lease: timedelta) -> RenewResult:
        stale, cancelled = await self._database.run(
            "queue_renew", holder_argument(holder), token_arguments(tokens), to_us(lease)
        )
        return RenewResult(stale=tuple(tokens[n] for n in stale), cancelled=tuple(tokens[n] for n in cancelled))

    async def begin(self, holder: Holder, tokens: Sequence[Token]) -> Sequence[Token]:
        return [tokens[n] for n in await self._database.run("queue_begin", holder_argument(holder), token_arguments(tokens))]

    async def release(self, holder: Holder, error: str, *, charge: bool = True, fence: Fence | None = None) -> Sequence[Job]:
        arguments = (*fence_arguments(fence), holder_argument(holder), error, int(charge))
        return jobs_of(await self._database.run("queue_release", *arguments))

    async def expire(self, limit: int = 1000) -> Sequence[Job]:
        return jobs_of(await self._database.run("queue_expire", limit))

    async def wait(self, pool_id: PoolId, within: timedelta) -> bool:
        """Wait for new jobs in the pool, by a blocking read of a Redis stream instead of polling. Returns False on timeout."""
        empty = self._empty.get(pool_id)
        if empty is None:
            ready, *news_and_due = await self._database.run("queue_look", pool_id)
            empty = self._note_empty(pool_id, *news_and_due)
            if ready:
                return True
        return await self._wait_for_news(pool_id, empty, within.total_seconds())

    async def _wait_for_news(self, pool_id: PoolId, empty: _EmptyQueue, seconds: float) -> bool:
        now = asyncio.get_running_loop().time()
        left = seconds if empty.due is None else min(seconds, empty.due - now)
        has_news = await self._database.wait_for_news(pool_id, empty.news, left)
        if not has_news and left >= seconds:
            return False
        self._empty.pop(pool_id, None)
        return True

    def _claimed(self, pool_id: PoolId, text: bytes, *news_and_due: Any) -> list[Job]:
        if news_and_due:
            self._note_empty(pool_id, *news_and_due)
        return jobs_of(text)

    def _note_empty(self, pool_id: PoolId, news: bytes, due_in: bytes | None = None) -> _EmptyQueue:
        due = None if due_in is None else asyncio.get_running_loop().time() + int(due_in) / 1e6
        self._empty[pool_id] = empty = _EmptyQueue(news=news, due=due)
        return empty
