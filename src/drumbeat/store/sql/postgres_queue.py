"""Jobs on the move in PostgreSQL: one statement, one round trip, wherever a job is simply pushed, claimed or done."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from operator import attrgetter
from typing import Any, Protocol

from drumbeat.core.errors import StoreUnavailable
from drumbeat.core.job import AlikeJobs, AttemptOutcome, Job, JobId, JobOutcome, NewJob, Token
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import Holder
from drumbeat.store.interface import Claiming, Settled
from drumbeat.store.job_ids import job_id_of, job_ids_of, refuse_own_form
from drumbeat.store.sql.claim_cursor import GROUND, Asking, ClaimCursor, risen
from drumbeat.store.sql.database import Database, Row, Rows, Script
from drumbeat.store.sql.job_rows import (
    are_plain,
    holder_values,
    json_list,
    json_text,
    new_job_values,
    result_text,
    row_id,
    rows_json,
)
from drumbeat.store.sql.job_scripts import claim_limited, first_words, settle_others, stale, there_already
from drumbeat.store.sql.pools import no_pool
from drumbeat.store.sql.postgres_push_fastpath import PushFastpath
from drumbeat.store.sql.queue import Notifier, SqlQueue
from drumbeat.store.sql.rows import to_us

_TRIES = 5  #: how often a push looks again for a job that was there, and was not when it looked


class Teller(Notifier, Protocol):
    """A bell that may also be rung within a statement."""

    def word(self, pool_id: PoolId) -> str | None: ...

    def unsaid(self, channel: str | None) -> None: ...


class PostgresQueue(SqlQueue):
    """Rows are locked as they are chosen, so that many claim at once and none waits for another."""

    net = timedelta(seconds=30)  #: a notification is lost only with its connection, which is noticed; a look costs the server

    def __init__(self, database: Database, bell: Teller, express: PushFastpath) -> None:
        """``express`` keeps one plain job and answers with its number."""
        super().__init__(database, bell)
        self._teller = bell
        self._express = express
        self._floors: dict[Asking, ClaimCursor] = {}

    async def ring(self, pool_ids: Iterable[PoolId]) -> None:
        """What was given back may be below the floor."""
        self._floors.clear()
        await super().ring(pool_ids)

    async def home(self) -> tuple[str, str]:
        """The database that holds the jobs, and when its server was started."""
        [found] = await self._database.read("find_home", {})
        return found["database"], found["started"]

    async def push(self, pool_id: PoolId, jobs: Sequence[NewJob]) -> Sequence[JobId]:
        if not are_plain(jobs):
            return await self._push_others(pool_id, jobs)
        query, values = _plain_step(pool_id, jobs)
        values["channel"] = self._teller.word(pool_id)
        try:
            if query != "push_one":
                return _pushed(pool_id, jobs, await self._database.write(query, values))
            number = await self._express.number(values)
        except BaseException:
            self._teller.unsaid(values["channel"])
            raise
        if number is None:
            raise no_pool(pool_id)
        return [job_id_of(number)]

    async def _push_others(self, pool_id: PoolId, jobs: Sequence[NewJob]) -> Sequence[JobId]:
        ids = await self._database.transact(push_script(pool_id, jobs, None))
        await self._bell.ring(pool_id)
        return ids

    async def claim(self, claiming: Claiming) -> Sequence[Job]:
        if claiming.limit < 1:
            return []
        return self._took(claiming, await self._claim(claiming))

    async def settle(self, holder: Holder, verdicts: Sequence[JobOutcome], claiming: Claiming | None = None) -> Settled:
        first = first_words(verdicts)
        numbers = await self._numbers(verdict.token for verdict in first)
        others = [verdict for verdict in first if verdict.outcome is not AttemptOutcome.DONE]
        began, floor = self._floor(claiming)
        values = _done_values(holder, first, numbers) | (_claim_values(claiming, floor) if claiming else {})
        query = "settle_and_claim" if claiming and claiming.limit > 0 else "settle_done"
        if others:
            held, rows = await self._database.transact(_settle(holder, others, numbers, query, values))
            await self.ring(job.pool_id for job in held.values())
        else:
            held, rows = {}, await self._database.write(query, values)
        for job_id in numbers:
            self._named.pop(job_id, None)
        if query == "settle_done" or claiming is None:
            kept = {row["seq"] for row in rows}
            return Settled(stale=stale(verdicts, set(held) | _kept(first, numbers, kept)))
        if not rows:
            raise no_pool(claiming.pool_id)
        good = set(held) | _kept(first, numbers, set(rows[0]["settled"]))
        claimed = self._took(claiming, await self._completed(claiming, rows, began, floor))
        return Settled(stale=stale(verdicts, good), claimed=tuple(claimed))

    def _floor(self, claiming: Claiming | None) -> tuple[float, ClaimCursor]:
        """The time, and from where to read."""
        now = asyncio.get_running_loop().time()
        floor = self._floors.get(_asking(claiming), GROUND) if claiming else GROUND
        return now, floor if floor.holds(now) else GROUND

    async def _claim(self, claiming: Claiming) -> Sequence[Row]:
        began, floor = self._floor(claiming)
        rows = await self._database.write("claim_jobs", _claim_values(claiming, floor))
        return await self._completed(claiming, rows, began, floor)

    async def _completed(self, claiming: Claiming, rows: Rows, began: float, floor: ClaimCursor) -> Sequence[Row]:
        """What was claimed, and what one statement could not claim: below the floor, of limited groups, or only just due."""
        if not rows:
            raise no_pool(claiming.pool_id)
        taken = [row for row in rows if row["seq"] is not None]
        left = claiming.limit - len(taken)
        if not left:
            self._floors[_asking(claiming)] = risen(floor, taken, began, asyncio.get_running_loop().time())
        if rows[0]["due"]:
            await self._database.write("promote_jobs", {"pool_id": claiming.pool_id})
        if left and (rows[0]["limited"] or rows[0]["due"]):
            values = _claim_values(claiming, GROUND) | {"limit": left}
            taken += await self._database.transact(_claim_under_lock(values))
        elif left and floor is not GROUND:
            self._floors.pop(_asking(claiming), None)
            taken += await self._claim(replace(claiming, limit=left, alone=claiming.alone and not taken))
        if not taken and claiming.alone and claiming.limit > 1 and rows[0]["alone_waits"]:
            taken += await self._claim(replace(claiming, limit=1))
        return taken


def push_script(pool_id: PoolId, jobs: Sequence[NewJob], channel: str | None) -> Script[list[JobId]]:
    """Push on whatever connection runs it; whoever waits is told when its transaction commits."""
    if are_plain(jobs):
        return _pushed(pool_id, jobs, (yield _plain_step(pool_id, jobs, channel)))
    for job in jobs:
        refuse_own_form(job)
    if not (yield "find_pool", {"pool_id": pool_id}):
        raise no_pool(pool_id)
    ids = yield from _push(pool_id, [new_job_values(job) for job in jobs])
    if channel is not None:
        yield "notify", {"channel": channel}
    return ids


def _plain_step(pool_id: PoolId, jobs: Sequence[NewJob], channel: str | None = None) -> tuple[str, dict[str, Any]]:
    where: dict[str, Any] = {"pool_id": pool_id, "channel": channel}
    if isinstance(jobs, AlikeJobs):
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
    """A row's first column is its job's number; they were drawn in the jobs' order."""
    if len(rows) != len(jobs):
        raise no_pool(pool_id)
    return job_ids_of(sorted(row[0] for row in rows))


def _push(pool_id: PoolId, jobs: Sequence[Mapping[str, Any]]) -> Script[list[JobId]]:
    """Keep what is new; for the rest find what is there, and look again where that has gone in the meantime."""
    ids: dict[int, JobId] = {}
    for _ in range(_TRIES):
        missing = [place for place in range(len(jobs)) if place not in ids]
        if not missing:
            break
        rows = yield "push_jobs", {"pool_id": pool_id, "jobs": rows_json([jobs[place] for place in missing])}
        yield from _placed(pool_id, jobs, missing, rows, ids)
    if len(ids) < len(jobs):
        raise StoreUnavailable("jobs of the same keys come and go too quickly to say which is there; push again")
    return [ids[place] for place in range(len(jobs))]


def _placed(
    pool_id: PoolId, jobs: Sequence[Mapping[str, Any]], places: Sequence[int], rows: Rows, ids: dict[int, JobId]
) -> Script[None]:
    """Whose place each new row has taken, and which job is there in the place of the others."""
    in_order = sorted(rows, key=lambda row: int(row["seq"]))
    new = [((row["given_id"], row["unique_key"]), row_id(row)) for row in in_order]
    for place in places:
        job = jobs[place]
        names = (job["given_id"], job["unique_key"])
        mine = next((n for n, (made, _) in enumerate(new) if made == names), None)
        if mine is not None:
            ids[place] = new.pop(mine)[1]
            continue
        found = yield from there_already(pool_id, job)
        if found is not None:
            ids[place] = found


def _settle(
    holder: Holder, others: Sequence[JobOutcome], numbers: Mapping[JobId, int], query: str, values: Mapping[str, Any]
) -> Script[tuple[dict[Token, Job], Rows]]:
    held = yield from settle_others(holder, others, numbers)
    return held, (yield query, values)


def _claim_under_lock(values: Mapping[str, Any]) -> Script[Sequence[Row]]:
    yield "lock_groups", {"pool_id": values["pool_id"]}
    gate = yield "claim_gate", {name: values[name] for name in ("pool_id", "holder_pool", "worker_id")}
    if not gate or not gate[0]["may_claim"]:
        return ()
    return (yield from claim_limited({**values, "now": gate[0]["now"]}))


def _asking(claiming: Claiming) -> Asking:
    return claiming.pool_id, claiming.capabilities, claiming.types


def _claim_values(claiming: Claiming, floor: ClaimCursor) -> dict[str, Any]:
    return holder_values(claiming.holder) | {
        "pool_id": claiming.pool_id,
        "lease": to_us(claiming.lease),
        "limit": claiming.limit,
        "ahead": claiming.ahead,
        "alone": claiming.alone and claiming.limit == 1,
        "capabilities": claiming.capabilities,
        "types": claiming.types,
        "priority": floor.priority,
        "number": floor.number,
    }


def _done_values(holder: Holder, verdicts: Sequence[JobOutcome], numbers: Mapping[JobId, int]) -> dict[str, Any]:
    done = [verdict for verdict in verdicts if verdict.outcome is AttemptOutcome.DONE and verdict.token.job_id in numbers]
    return holder_values(holder) | {
        "seqs": [numbers[verdict.token.job_id] for verdict in done],
        "epochs": [verdict.token.epoch for verdict in done],
        "results": [result_text(verdict.result) for verdict in done],
    }


def _kept(first: Sequence[JobOutcome], numbers: Mapping[JobId, int], kept: set[int]) -> set[Token]:
    return {verdict.token for verdict in first if numbers.get(verdict.token.job_id) in kept}
