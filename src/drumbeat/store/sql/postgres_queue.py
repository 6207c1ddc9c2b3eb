"""The job queue in PostgreSQL: a plain push, claim or completion is one statement and one round trip."""

import asyncio
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from operator import attrgetter
from typing import Any, Protocol

from drumbeat.core.errors import StoreUnavailable
from drumbeat.core.job import AttemptOutcome, Job, JobId, JobOutcome, JobsWithTemplate, NewJob, Token
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import Holder
from drumbeat.store.flow_rules import has_links, links_within, may_free_a_key, parents_first
from drumbeat.store.interface import ClaimRequest, RenewResult, SettleResult
from drumbeat.store.job_ids import check_keys, job_id_of, job_ids_of
from drumbeat.store.sql.claim_cursor import START, ClaimCursor, CursorKey, advanced
from drumbeat.store.sql.database import Database, Row, Rows, Script, transact_again, write_again
from drumbeat.store.sql.flow_scripts import link_jobs, push_in_turn
from drumbeat.store.sql.job_rows import (
    are_plain,
    holder_values,
    json_list,
    json_text,
    new_job_values,
    result_text,
    row_id,
    rows_json,
    tokens_json,
)
from drumbeat.store.sql.job_scripts import (
    LockedSettlement,
    claim_limited,
    existing_job,
    one_outcome_per_job,
    refused_tokens,
    settle_locked,
)
from drumbeat.store.sql.pools import no_jobs_pool, no_pool
from drumbeat.store.sql.postgres_push_fastpath import PushFastpath
from drumbeat.store.sql.queue import Notifier, SqlQueue
from drumbeat.store.sql.rows import to_us

_RENEW_AGAIN = (timedelta(milliseconds=20), timedelta(milliseconds=100), timedelta(milliseconds=400))  #: pauses before retries
_TRIES = 5  #: how often a push is tried if an existing job with the same unique key ends before it is found


class StatementNotifier(Notifier, Protocol):
    """A notifier that also names a pool's channel, so that one SQL statement can insert jobs and notify the channel."""

    def channel_to_notify(self, pool_id: PoolId) -> str | None: ...

    def notify_later(self, channel: str | None) -> None: ...


class PostgresQueue(SqlQueue):
    """The job queue in PostgreSQL. Claims skip rows that are locked, so concurrent claims do not wait for each other."""

    poll_interval = timedelta(seconds=30)  #: long: notifications are lost only with the connection, which is noticed

    def __init__(self, database: Database, notifier: StatementNotifier, fastpath: PushFastpath) -> None:
        """``fastpath`` runs the query that inserts one plain job and returns its number."""
        super().__init__(database, notifier)
        self._statement_notifier = notifier
        self._fastpath = fastpath
        self._cursors: dict[CursorKey, ClaimCursor] = {}

    async def notify(self, pool_ids: Iterable[PoolId]) -> None:
        """Wake workers that wait for jobs. Claims then read the queue from its start, since an earlier job might be ready."""
        self._cursors.clear()
        await super().notify(pool_ids)

    async def push(self, pool_id: PoolId, jobs: Sequence[NewJob]) -> Sequence[JobId]:
        if not are_plain(jobs):
            return await self._push_others(pool_id, jobs)
        query, values = _plain_step(pool_id, jobs)
        values["channel"] = self._statement_notifier.channel_to_notify(pool_id)
        try:
            if query != "push_one":
                return _pushed(pool_id, jobs, await self._database.write(query, values))
            number = await self._fastpath.number(values)
        except BaseException:
            self._statement_notifier.notify_later(values["channel"])
            raise
        if number is None:
            raise no_jobs_pool(pool_id)
        return [job_id_of(number)]

    async def _push_others(self, pool_id: PoolId, jobs: Sequence[NewJob]) -> Sequence[JobId]:
        ids = await transact_again(self._database, lambda: push_script(pool_id, jobs, None))
        await self._notifier.notify(pool_id)
        return ids

    async def claim(self, claiming: ClaimRequest) -> Sequence[Job]:
        if claiming.limit < 1:
            return []
        return self._claimed_jobs(claiming, await self._claim(claiming))

    async def settle(
        self, holder: Holder, verdicts: Sequence[JobOutcome], claiming: ClaimRequest | None = None
    ) -> SettleResult:
        first = one_outcome_per_job(verdicts)
        numbers = await self.numbers(verdict.token for verdict in first)
        done = [verdict for verdict in first if verdict.outcome is AttemptOutcome.DONE]
        others = [verdict for verdict in first if verdict.outcome is not AttemptOutcome.DONE]
        began, cursor = self._cursor(claiming)
        request = claiming or ClaimRequest(pool_id=holder.pool_id, holder=holder, lease=timedelta(), limit=0)
        values = done_values(holder, done, numbers) | _claim_values(request, cursor)
        if others:
            settled, rows = await transact_again(self._database, lambda: _settle(holder, others, numbers, values))
            await self.notify(settled.pools)
            accepted = set(settled.held)
        else:
            accepted, rows = set(), await write_again(self._database, "settle_and_claim", values)
        if claiming and not rows:
            raise no_pool(claiming.pool_id)
        accepted |= _tokens_of(done, numbers, {number for row in rows[:1] for number in row["settled"]})
        freed = [pool_id for row in rows[:1] for pool_id in row["freed_pools"]]
        await self.notify(freed)
        late = [verdict for verdict in done if verdict.token not in accepted and verdict.token.job_id in numbers]
        accepted |= await self._settle_late(holder, late, numbers)
        for job_id in numbers:
            self._chosen_ids.pop(job_id, None)
        if claiming is None or claiming.limit < 1:
            return SettleResult(stale=refused_tokens(verdicts, accepted))
        again = claiming.pool_id in freed or any(verdict.token in accepted for verdict in late)
        first_claim = (
            replace(claiming, alone=False) if again else claiming
        )  # a job that just became ready comes before a job that must run alone
        claimed = self._claimed_jobs(claiming, await self._with_missed_jobs(first_claim, rows, began, cursor))
        if freed:
            self._cursors.clear()  # the jobs may be earlier in the queue than those that were claimed
        if again and len(claimed) < claiming.limit:
            alone = claiming.alone and not claimed
            claimed += await self.claim(replace(claiming, limit=claiming.limit - len(claimed), alone=alone))
        return SettleResult(stale=refused_tokens(verdicts, accepted), claimed=tuple(claimed))

    async def renew(self, holder: Holder, tokens: Sequence[Token], lease: timedelta) -> RenewResult:
        """Extend claims. Does not wait for a job that a transaction has locked, but tries again a few times, since most locks
        are short. If the job is still locked then, its token is in ``locked`` of the result."""
        first = await super().renew(holder, tokens, lease)
        stale, cancelled = [*first.stale], [*first.cancelled]
        locked = await self._held(holder, stale)
        for pause in _RENEW_AGAIN:
            if not locked:
                break
            await asyncio.sleep(pause.total_seconds())
            again = await super().renew(holder, locked, lease)
            stale = [token for token in stale if token not in locked or token in again.stale]
            cancelled += again.cancelled
            locked = await self._held(holder, again.stale)
        lost = tuple(token for token in stale if token not in locked)
        return RenewResult(stale=lost, cancelled=tuple(cancelled), locked=tuple(locked))

    async def _held(self, holder: Holder, tokens: Sequence[Token]) -> list[Token]:
        """Return the claims that the worker still holds, without waiting for locks."""
        if not tokens:
            return []
        numbers = await self.numbers(tokens)
        rows = await self._database.read("list_held", holder_values(holder) | {"tokens": tokens_json(tokens, numbers)})
        held = {row["seq"] for row in rows}
        return [token for token in tokens if numbers.get(token.job_id) in held]

    async def _settle_late(self, holder: Holder, late: Sequence[JobOutcome], numbers: Mapping[JobId, int]) -> set[Token]:
        """Try to record outcomes that the first statement left out: the job is no longer held, or just got a child."""
        if not late:
            return set()
        settled = await transact_again(self._database, lambda: settle_locked(holder, late, numbers))
        await self.notify(settled.pools)
        return set(settled.held)

    def _cursor(self, claiming: ClaimRequest | None) -> tuple[float, ClaimCursor]:
        """Return the current time, and the cursor (position in the queue) at which the claim starts to read."""
        now = asyncio.get_running_loop().time()
        cursor = self._cursors.get(_cursor_key(claiming), START) if claiming else START
        return now, cursor if cursor.holds(now) else START

    async def _claim(self, claiming: ClaimRequest) -> Sequence[Row]:
        began, cursor = self._cursor(claiming)
        rows = await self._database.write("claim_jobs", _claim_values(claiming, cursor))
        return await self._with_missed_jobs(claiming, rows, began, cursor)

    async def _with_missed_jobs(self, claiming: ClaimRequest, rows: Rows, began: float, cursor: ClaimCursor) -> Sequence[Row]:
        """Return the claimed ``rows``. If there are too few, also claim jobs that the first query left out: those before
        ``cursor``, those in groups with limits, and those that have just become due."""
        if not rows:
            raise no_pool(claiming.pool_id)
        taken = [row for row in rows if row["seq"] is not None]
        left = claiming.limit - len(taken)
        if not left:
            self._cursors[_cursor_key(claiming)] = advanced(cursor, taken, began, asyncio.get_running_loop().time())
        if rows[0]["due"]:
            await self._database.write("promote_jobs", {"pool_id": claiming.pool_id})
        if left and (rows[0]["limited"] or rows[0]["due"]):
            values = _claim_values(claiming, START) | {"limit": left}
            taken += await self._database.transact(_claim_under_lock(values))
        elif left and cursor is not START:
            self._cursors.pop(_cursor_key(claiming), None)
            taken += await self._claim(replace(claiming, limit=left, alone=claiming.alone and not taken))
        if not taken and claiming.alone and claiming.limit > 1 and rows[0]["alone_waits"]:
            taken += await self._claim(replace(claiming, limit=1))
        return taken


def push_script(pool_id: PoolId, jobs: Sequence[NewJob], channel: str | None) -> Script[list[JobId]]:
    """Push jobs in the transaction that runs this script; its commit wakes workers that listen on ``channel``."""
    if are_plain(jobs):
        return _pushed(pool_id, jobs, (yield _plain_step(pool_id, jobs, channel)))
    for job in jobs:
        check_keys(job)
    if may_free_a_key(jobs) or _may_swap(jobs):
        return (yield from push_in_turn(jobs, lambda each: push_script(pool_id, each, channel)))
    order, links = (parents_first(jobs), links_within(jobs)) if has_links(jobs) else (range(len(jobs)), Counter())
    yield from share_pool(pool_id)
    found, new = yield from _push(pool_id, [new_job_values(jobs[place], links[jobs[place].job_id]) for place in order])
    placed = {place: found[n] for n, place in enumerate(order)}
    ids = [placed[place] for place in range(len(jobs))]
    yield from link_jobs(pool_id, jobs, ids, {order[n]: number for n, number in sorted(new.items())}, links)
    if channel is not None:
        yield "notify", {"channel": channel}
    return ids


def _may_swap(jobs: Sequence[NewJob]) -> bool:
    """Whether two jobs have the same id but different unique keys. ``push_jobs`` inserts in the order of the keys, so it would
    keep the job with the lower key, but the first of the two must be kept."""
    if isinstance(jobs, JobsWithTemplate):
        return False
    chosen = {(job.job_id, job.unique_key) for job in jobs if job.job_id is not None}
    return len({job_id for job_id, _ in chosen}) < len(chosen)


def share_pool(pool_id: PoolId) -> Script[None]:
    """Keep the pool from being deleted until the transaction that runs this script ends. Raises NotFound."""
    if not (yield "share_pool", {"pool_id": pool_id}):
        raise no_jobs_pool(pool_id)


def _plain_step(pool_id: PoolId, jobs: Sequence[NewJob], channel: str | None = None) -> tuple[str, dict[str, Any]]:
    where: dict[str, Any] = {"pool_id": pool_id, "channel": channel}
    if isinstance(jobs, JobsWithTemplate):
        return _alike_step(where, jobs.payloads, jobs.like)
    payloads, types, priorities = ([*map(attrgetter(name), jobs)] for name in ("payload", "type", "priority"))
    if len(set(types)) == len(set(priorities)) == 1:
        return _alike_step(where, payloads, jobs[0])
    return "push_plain", where | {"payloads": json_list(payloads, "payload"), "types": types, "priorities": priorities}


def _alike_step(where: dict[str, Any], payloads: Sequence[Any], like: NewJob) -> tuple[str, dict[str, Any]]:
    where["type"], where["priority"] = like.type, like.priority
    if len(payloads) == 1:
        where["payload"] = json_text(payloads[0], "payload")
        return "push_one", where
    where["payloads"] = json_list(payloads, "payload")
    return "push_alike", where


def _pushed(pool_id: PoolId, jobs: Sequence[NewJob], rows: Rows) -> list[JobId]:
    """Return the ids of pushed jobs. Each row starts with the number of a job; numbers rise in the order of ``jobs``."""
    if len(rows) != len(jobs):
        raise no_jobs_pool(pool_id)
    return job_ids_of(sorted(row[0] for row in rows))


def _push(pool_id: PoolId, jobs: Sequence[Mapping[str, Any]]) -> Script[tuple[list[JobId], dict[int, int]]]:
    """Insert the new jobs, and find the existing job for each duplicate; try again if that job has ended meanwhile. Returns the
    id of each job, and the row number of each new job by its position in ``jobs``."""
    ids: dict[int, JobId] = {}
    added: dict[int, int] = {}
    for _ in range(_TRIES):
        missing = [place for place in range(len(jobs)) if place not in ids]
        if not missing:
            break
        rows = yield "push_jobs", {"pool_id": pool_id, "jobs": rows_json([jobs[place] for place in missing])}
        added |= yield from _assign_ids(pool_id, jobs, missing, rows, ids)
    if len(ids) < len(jobs):
        raise StoreUnavailable("jobs with the same unique keys were added and ended while this push ran; push again")
    return [ids[place] for place in range(len(jobs))], added


def _assign_ids(
    pool_id: PoolId, jobs: Sequence[Mapping[str, Any]], places: Sequence[int], rows: Rows, ids: dict[int, JobId]
) -> Script[dict[int, int]]:
    """Add the ids of the jobs at the indexes ``places`` to ``ids``. Returns the row numbers of the new jobs, by index.

    ``rows`` are the rows that were just inserted. A job without a row is a duplicate: it gets the id of the existing job with
    the same id or unique key. If that job no longer exists, the duplicate gets no id, and must be inserted again."""
    added: dict[int, int] = {}
    keyed: dict[tuple[str | None, str | None], Row] = {}
    others = deque[Row]()
    for row in sorted(rows, key=lambda row: int(row["seq"])):
        if row["given_id"] is None and row["unique_key"] is None:
            others.append(row)
        else:
            keyed[row["given_id"], row["unique_key"]] = row
    for place in places:
        job = jobs[place]
        key = job["given_id"], job["unique_key"]
        new = others.popleft() if key == (None, None) else keyed.pop(key, None)
        if new is not None:
            ids[place], added[place] = row_id(new), new["seq"]
            continue
        found = yield from existing_job(pool_id, job)
        if found is not None:
            ids[place] = found
    return added


def _settle(
    holder: Holder, others: Sequence[JobOutcome], numbers: Mapping[JobId, int], values: Mapping[str, Any]
) -> Script[tuple[LockedSettlement, Rows]]:
    settled = yield from settle_locked(holder, others, numbers)
    return settled, (yield "settle_and_claim", values)


def _claim_under_lock(values: Mapping[str, Any]) -> Script[Sequence[Row]]:
    yield "lock_groups", {"pool_id": values["pool_id"]}
    gate = yield "claim_gate", {name: values[name] for name in ("pool_id", "holder_pool", "worker_id", "instance")}
    if not gate or not gate[0]["may_claim"]:
        return ()
    return (yield from claim_limited({**values, "now": gate[0]["now"]}))


def _cursor_key(claiming: ClaimRequest) -> CursorKey:
    return claiming.pool_id, claiming.capabilities, claiming.types, claiming.without


def _claim_values(claiming: ClaimRequest, cursor: ClaimCursor) -> dict[str, Any]:
    return holder_values(claiming.holder) | {
        "pool_id": claiming.pool_id,
        "lease": to_us(claiming.lease),
        "limit": claiming.limit,
        "ahead": claiming.ahead,
        "alone": claiming.alone and claiming.limit == 1,
        "capabilities": claiming.capabilities,
        "types": claiming.types,
        "without": claiming.without,
        "priority": cursor.priority,
        "number": cursor.number,
    }


def done_values(holder: Holder, verdicts: Sequence[JobOutcome], numbers: Mapping[JobId, int]) -> dict[str, Any]:
    """Return the query values that mark the jobs of these outcomes as done; outcomes other than done are left out."""
    done = [verdict for verdict in verdicts if verdict.outcome is AttemptOutcome.DONE and verdict.token.job_id in numbers]
    done.sort(key=lambda verdict: numbers[verdict.token.job_id])  # in the order in which a push locks parents
    return holder_values(holder) | {
        "seqs": [numbers[verdict.token.job_id] for verdict in done],
        "epochs": [verdict.token.epoch for verdict in done],
        "results": [result_text(verdict.result) for verdict in done],
    }


def _tokens_of(verdicts: Sequence[JobOutcome], numbers: Mapping[JobId, int], done: set[int]) -> set[Token]:
    return {verdict.token for verdict in verdicts if numbers.get(verdict.token.job_id) in done}
