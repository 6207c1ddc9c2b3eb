"""Jobs on the move, as far as every SQL database does it the same way: fencing, recovery and waiting."""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar, Protocol

from drumbeat.core.job import Job, JobId, Token
from drumbeat.core.lease import Fence
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import Holder
from drumbeat.store.interface import Claiming, Renewed
from drumbeat.store.job_ids import number_of
from drumbeat.store.sql.database import Database, Row, Script
from drumbeat.store.sql.job_rows import holder_values, in_order_of_claiming, tokens_json
from drumbeat.store.sql.job_scripts import expire, release
from drumbeat.store.sql.pools import no_pool
from drumbeat.store.sql.rows import to_us

LISTENING_POLL = timedelta(seconds=10)  #: the net under a bell that rings
DEAF_POLL = (timedelta(milliseconds=50), timedelta(seconds=5))  #: without one: often at first, then ever less
VAIN_PAUSE = (timedelta(milliseconds=50), timedelta(seconds=5))  #: between looks at jobs that one cannot have


@dataclass(slots=True)
class Subscription:
    """Where somebody hears of news in a pool."""

    heard: asyncio.Event
    live: bool  #: whether anything would be heard


class Notifier(Protocol):
    """How whoever waits is told, in this process and others."""

    def listening(self, pool_id: PoolId) -> AbstractAsyncContextManager[Subscription]: ...

    async def ring(self, pool_id: PoolId) -> None:
        """Say that there is news; at most once in a few milliseconds, and then once more."""
        ...


class SqlQueue:
    """What both databases share."""

    net: ClassVar[timedelta] = LISTENING_POLL  #: how long who hears waits before it looks

    def __init__(self, database: Database, bell: Notifier) -> None:
        self._database = database
        self._bell = bell
        self._vain: dict[PoolId, int] = {}
        self._named: dict[JobId, int] = {}  #: numbers of claimed jobs that somebody named

    async def ring(self, pool_ids: Iterable[PoolId]) -> None:
        for pool_id in dict.fromkeys(pool_ids):
            await self._bell.ring(pool_id)

    async def renew(self, holder: Holder, tokens: Sequence[Token], lease: timedelta) -> Renewed:
        numbers = await self._numbers(tokens)
        values = holder_values(holder) | {"tokens": tokens_json(tokens, numbers), "lease": to_us(lease)}
        rows = await self._database.write("renew_held", values) if tokens else ()
        kept = {row["seq"]: bool(row["cancel_requested"]) for row in rows}
        return Renewed(
            stale=tuple(token for token in tokens if numbers.get(token.job_id) not in kept),
            cancelled=tuple(token for token in tokens if kept.get(numbers.get(token.job_id, 0))),
        )

    async def begin(self, holder: Holder, tokens: Sequence[Token]) -> Sequence[Token]:
        numbers = await self._numbers(tokens)
        values = holder_values(holder) | {"tokens": tokens_json(tokens, numbers)}
        begun = {row["seq"] for row in await self._database.write("begin_held", values)} if tokens else set()
        return [token for token in tokens if numbers.get(token.job_id) not in begun]

    async def release(self, holder: Holder, error: str, *, fence: Fence | None = None) -> Sequence[Job]:
        return await self._recovered(release(holder, error, fence))

    async def expire(self, limit: int = 1000) -> Sequence[Job]:
        """Looks first: nearly always there is nothing to lock."""
        return await self._recovered(expire(limit)) if await self._database.read("any_expired", {}) else []

    async def wait(self, pool_id: PoolId, within: timedelta) -> bool:
        async with self._bell.listening(pool_id) as ear:
            return await self._wait(pool_id, ear, within.total_seconds())

    async def _wait(self, pool_id: PoolId, ear: Subscription, within: float) -> bool:
        """Look, sleep until something rings or comes due, look again."""
        now = asyncio.get_running_loop().time
        deadline, looks = now() + within, 0
        patient_until = now() + _backed_off(VAIN_PAUSE, self._vain.get(pool_id, 0))
        while True:
            ready, due_in = await self._standing(pool_id)
            if (ready and now() >= patient_until) or (due_in is not None and due_in <= 0):
                self._vain[pool_id] = self._vain.get(pool_id, 0) + 1
                return True
            poll = self.net.total_seconds() if ear.live else _backed_off(DEAF_POLL, looks + 1)
            ends = [deadline - now(), poll, *([patient_until - now()] if ready else []), *([due_in] if due_in else [])]
            if await _rang(ear, min(ends)):
                return True
            if now() >= deadline:
                return False
            looks += 1

    async def _standing(self, pool_id: PoolId) -> tuple[bool, float | None]:
        rows = await self._database.read("queue_standing", {"pool_id": pool_id})
        if not rows:
            raise no_pool(pool_id)
        due = rows[0]["next_due"]
        return bool(rows[0]["ready"]), None if due is None else (due - rows[0]["now"]) / 1e6

    async def _recovered(self, script: Script[list[Job]]) -> list[Job]:
        jobs = await self._database.transact(script)
        await self.ring(job.pool_id for job in jobs)
        return jobs

    def _took(self, claiming: Claiming, rows: Sequence[Row]) -> list[Job]:
        jobs = in_order_of_claiming(rows)
        if jobs:
            self._vain.pop(claiming.pool_id, None)
        for row in rows:
            if row["given_id"] is not None:
                self._named[row["given_id"]] = row["seq"]
        return jobs

    async def _numbers(self, tokens: Iterable[Token]) -> dict[JobId, int]:
        """The number of each token's job, where there is such a job."""
        numbers: dict[JobId, int] = {}
        for token in tokens:
            number = number_of(token.job_id) or self._named.get(token.job_id)
            if number is None:
                rows = await self._database.read("find_job_by_id", {"job_id": token.job_id})
                number = rows[0]["seq"] if rows else None
            if number is not None:
                numbers[token.job_id] = number
        return numbers


async def _rang(ear: Subscription, within: float) -> bool:
    try:
        async with asyncio.timeout(max(within, 0.0)):
            await ear.heard.wait()
    except TimeoutError:
        return False
    return True


def _backed_off(bounds: tuple[timedelta, timedelta], times: int) -> float:
    least, most = (bound.total_seconds() for bound in bounds)
    return min(least * 2.0 ** (times - 1), most) if times else 0.0
