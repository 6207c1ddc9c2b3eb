"""The parts of the job queue that all SQL databases share: renewing leases, taking back lost jobs, waiting for jobs."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar, Protocol

from drumbeat.core.job import Job, JobId, Token
from drumbeat.core.lease import Fence
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import Holder
from drumbeat.store.interface import ClaimRequest, RenewResult
from drumbeat.store.job_ids import number_of
from drumbeat.store.sql.database import Database, Row, Script, transact_again
from drumbeat.store.sql.job_rows import holder_values, in_order_of_claiming, tokens_json
from drumbeat.store.sql.job_scripts import expire, release
from drumbeat.store.sql.pools import no_pool
from drumbeat.store.sql.rows import to_us

LISTENING_POLL = timedelta(seconds=10)  #: poll interval while notifications work, in case one is lost
UNNOTIFIED_POLL = (timedelta(milliseconds=50), timedelta(seconds=5))  #: bounds of the poll interval without notifications
FUTILE_PAUSE = (timedelta(milliseconds=50), timedelta(seconds=5))  #: bounds of the pause while ready jobs cannot be claimed
_MOST_DOUBLINGS = 30  #: more would not lengthen a pause, and 2^1024 is too large for a float


@dataclass(slots=True)
class Subscription:
    """The subscription of a waiting caller to notifications about a pool's jobs."""

    notified: asyncio.Event
    live: bool  #: whether notifications are available; if not, the caller must poll


class Notifier(Protocol):
    """Wakes the callers, in this process and others, that wait for jobs of a pool."""

    def listening(self, pool_id: PoolId) -> AbstractAsyncContextManager[Subscription]: ...

    async def notify(self, pool_id: PoolId) -> None:
        """Wake the callers that wait for a pool's jobs. A notification is delayed if the last one was sent milliseconds ago."""
        ...


class SqlQueue:
    """The parts of the job queue that all SQL databases share: renewing leases, taking back lost jobs, waiting for jobs."""

    poll_interval: ClassVar[timedelta] = LISTENING_POLL  #: poll interval while notifications work

    def __init__(self, database: Database, notifier: Notifier) -> None:
        self._database = database
        self._notifier = notifier
        self._futile_waits: dict[PoolId, int] = {}
        self._chosen_ids: dict[JobId, int] = {}  #: row numbers of claimed jobs with ids chosen by the caller

    async def notify(self, pool_ids: Iterable[PoolId]) -> None:
        for pool_id in dict.fromkeys(pool_ids):
            await self._notifier.notify(pool_id)

    async def renew(self, holder: Holder, tokens: Sequence[Token], lease: timedelta) -> RenewResult:
        numbers = await self.numbers(tokens)
        values = holder_values(holder) | {"tokens": tokens_json(tokens, numbers), "lease": to_us(lease)}
        rows = await self._database.write("renew_held", values) if tokens else ()
        renewed = {row["seq"]: bool(row["cancel_requested"]) for row in rows}
        return RenewResult(
            stale=tuple(token for token in tokens if numbers.get(token.job_id) not in renewed),
            cancelled=tuple(token for token in tokens if renewed.get(numbers.get(token.job_id, 0))),
        )

    async def begin(self, holder: Holder, tokens: Sequence[Token]) -> Sequence[Token]:
        numbers = await self.numbers(tokens)
        values = holder_values(holder) | {"tokens": tokens_json(tokens, numbers)}
        begun = {row["seq"] for row in await self._database.write("begin_held", values)} if tokens else set()
        return [token for token in tokens if numbers.get(token.job_id) not in begun]

    async def release(self, holder: Holder, error: str, *, charge: bool = True, fence: Fence | None = None) -> Sequence[Job]:
        return await self._recovered(lambda: release(holder, error, fence, charge=charge))

    async def expire(self, limit: int = 1000) -> Sequence[Job]:
        """Take back jobs with expired leases. A cheap read comes first, since there is rarely anything to lock."""
        return await self._recovered(lambda: expire(limit)) if await self._database.read("any_expired", {}) else []

    async def wait(self, pool_id: PoolId, within: timedelta) -> bool:
        async with self._notifier.listening(pool_id) as subscription:
            return await self._wait(pool_id, subscription, within.total_seconds())

    async def _wait(self, pool_id: PoolId, subscription: Subscription, within: float) -> bool:
        """Check the queue, then sleep until a notification, the next due job or the next poll; repeat until the deadline."""
        now = asyncio.get_running_loop().time
        deadline, polls = now() + within, 0
        not_before = now() + _backed_off(FUTILE_PAUSE, self._futile_waits.get(pool_id, 0))
        while True:
            ready, due_in = await self._readiness(pool_id)
            if (ready and now() >= not_before) or (due_in is not None and due_in <= 0):
                self._futile_waits[pool_id] = self._futile_waits.get(pool_id, 0) + 1
                return True
            poll = self.poll_interval.total_seconds() if subscription.live else _backed_off(UNNOTIFIED_POLL, polls + 1)
            ends = [deadline - now(), poll, *([not_before - now()] if ready else []), *([due_in] if due_in else [])]
            if await _notified(subscription, min(ends)):
                return True
            if now() >= deadline:
                return False
            polls += 1

    async def _readiness(self, pool_id: PoolId) -> tuple[bool, float | None]:
        rows = await self._database.read("queue_standing", {"pool_id": pool_id})
        if not rows:
            raise no_pool(pool_id)
        due = rows[0]["next_due"]
        return bool(rows[0]["ready"]), None if due is None else (due - rows[0]["now"]) / 1e6

    async def _recovered(self, make: Callable[[], Script[tuple[list[Job], set[PoolId]]]]) -> list[Job]:
        jobs, pools = await transact_again(self._database, make)
        await self.notify(pools)
        return jobs

    def _claimed_jobs(self, claiming: ClaimRequest, rows: Sequence[Row]) -> list[Job]:
        jobs = in_order_of_claiming(rows)
        if jobs:
            self._futile_waits.pop(claiming.pool_id, None)
        for row in rows:
            if row["given_id"] is not None:
                self._chosen_ids[row["given_id"]] = row["seq"]
        return jobs

    async def numbers(self, tokens: Iterable[Token]) -> dict[JobId, int]:
        """Return the row number of each token's job, by job id. An id that the store assigned contains the number; for an id
        that a caller chose, the number is looked up, and the job is left out if it is not found."""
        numbers: dict[JobId, int] = {}
        for token in tokens:
            number = number_of(token.job_id) or self._chosen_ids.get(token.job_id)
            if number is None:
                rows = await self._database.read("find_job_by_id", {"job_id": token.job_id})
                number = rows[0]["seq"] if rows else None
            if number is not None:
                numbers[token.job_id] = number
        return numbers


async def _notified(subscription: Subscription, within: float) -> bool:
    try:
        async with asyncio.timeout(max(within, 0.0)):
            await subscription.notified.wait()
    except TimeoutError:
        return False
    return True


def _backed_off(bounds: tuple[timedelta, timedelta], times: int) -> float:
    least, most = (bound.total_seconds() for bound in bounds)
    return min(least * 2.0 ** min(times - 1, _MOST_DOUBLINGS), most) if times else 0.0
