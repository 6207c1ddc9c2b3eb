"""The job queue in SQLite: each operation is one script for the writing thread, which commits many of them at once."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from drumbeat.core.job import AttemptOutcome, Job, JobId, JobOutcome, JobStatus, JobsWithTemplate, NewJob, Token
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import Holder
from drumbeat.store.flow_rules import has_links, links_within, may_free_a_key, parents_first
from drumbeat.store.interface import ClaimRequest, SettleResult
from drumbeat.store.job_ids import check_keys, job_id_of, job_ids_of
from drumbeat.store.sql.database import Bulk, Row, Script
from drumbeat.store.sql.flow_scripts import link_jobs, pass_on_done, push_in_turn
from drumbeat.store.sql.job_rows import are_plain, holder_values, json_text, new_job_values, result_text, rows_json
from drumbeat.store.sql.job_scripts import (
    claim_limited,
    existing_job,
    note_ended,
    one_outcome_per_job,
    refused_tokens,
    settle_locked,
)
from drumbeat.store.sql.pools import no_jobs_pool, no_pool
from drumbeat.store.sql.queue import SqlQueue
from drumbeat.store.sql.rows import dump, to_us

_PLAIN = ("seq", "pool_id", "type", "payload", "priority", "created_at")


class SqliteQueue(SqlQueue):
    """The job queue in SQLite. Only one script writes at a time, so rows that it has read do not change until it ends."""

    async def push(self, pool_id: PoolId, jobs: Sequence[NewJob]) -> Sequence[JobId]:
        script = _push_plain(pool_id, _plain_values(jobs)) if are_plain(jobs) else push_script(pool_id, jobs)
        ids = await self._database.transact(script)
        await self._notifier.notify(pool_id)
        return ids

    async def claim(self, claiming: ClaimRequest) -> Sequence[Job]:
        return self._claimed_jobs(claiming, await self._database.transact(_claim(claiming)))

    async def settle(
        self, holder: Holder, verdicts: Sequence[JobOutcome], claiming: ClaimRequest | None = None
    ) -> SettleResult:
        numbers = await self.numbers(verdict.token for verdict in verdicts)
        accepted, pools, rows = await self._database.transact(_settle(holder, verdicts, numbers, claiming))
        for job_id in numbers:
            self._chosen_ids.pop(job_id, None)
        await self.notify(pools)
        return SettleResult(
            stale=refused_tokens(verdicts, accepted), claimed=tuple(self._claimed_jobs(claiming, rows)) if claiming else ()
        )


def push_script(pool_id: PoolId, jobs: Sequence[NewJob]) -> Script[list[JobId]]:
    """Push jobs in the transaction that runs this script, which must hold the file's write lock."""
    for job in jobs:
        check_keys(job)
    if may_free_a_key(jobs):
        return push_in_turn(jobs, partial(push_script, pool_id))
    if not has_links(jobs):
        return _push(pool_id, jobs, {}, range(len(jobs)))
    return _push(pool_id, jobs, links_within(jobs), parents_first(jobs))


def _plain_values(jobs: Sequence[NewJob]) -> Sequence[tuple[str, str, int]]:
    if isinstance(jobs, JobsWithTemplate):
        like = jobs.like
        return [(like.type, json_text(payload, "payload"), like.priority) for payload in jobs.payloads]
    return [(job.type, json_text(job.payload, "payload"), job.priority) for job in jobs]


def _push_plain(pool_id: PoolId, jobs: Sequence[tuple[str, str, int]]) -> Script[list[JobId]]:
    first, now = yield from _next_number(pool_id, len(jobs))
    records = [(seq, pool_id, kind, payload, priority, now) for seq, (kind, payload, priority) in enumerate(jobs, first)]
    if records:
        yield "push_plain", Bulk(table="jobs", columns=_PLAIN, records=records)
    return job_ids_of(range(first, first + len(records)))


def _push(
    pool_id: PoolId, jobs: Sequence[NewJob], links: Mapping[JobId | None, int], order: Sequence[int]
) -> Script[list[JobId]]:
    """Push jobs in this order. ``links``: how many children each job has in the same push, by the id that the caller chose."""
    values = [new_job_values(job, links.get(job.job_id, 0)) for job in jobs]
    number, now = yield from _next_number(pool_id, len(jobs))
    ids: dict[int, JobId] = {}
    new: dict[int, int] = {}
    for place in order:
        job = values[place]
        rows = yield "push_job", {**job, "pool_id": pool_id, "seq": number, "now": now}
        if rows:
            ids[place] = JobId(job["given_id"]) if job["given_id"] is not None else job_id_of(number)
            new[place] = number
            number += 1
        else:
            ids[place] = (yield from existing_job(pool_id, job)) or job_id_of(number)
    in_order = [ids[place] for place in range(len(jobs))]
    yield from link_jobs(pool_id, jobs, in_order, new, links)
    return in_order


def _next_number(pool_id: PoolId, count: int) -> Script[tuple[int, int]]:
    rows = yield "next_number", {"pool_id": pool_id, "count": count}
    if not rows:
        raise no_jobs_pool(pool_id)
    return rows[0]["seq"], rows[0]["now"]


def _claim(claiming: ClaimRequest) -> Script[Sequence[Row]]:
    gate = yield "claim_gate", holder_values(claiming.holder) | {"pool_id": claiming.pool_id}
    if not gate:
        raise no_pool(claiming.pool_id)
    if not gate[0]["may_claim"] or claiming.limit < 1:
        return ()
    values = _claim_values(claiming) | {"now": gate[0]["now"]}
    if gate[0]["due"]:
        yield "promote_jobs", values
    among_groups = gate[0]["limited"] or gate[0]["due"]
    rows = yield from _take(values, among_groups=among_groups)
    if not rows and gate[0]["alone_waits"] and claiming.alone:
        rows = yield from _take(values | {"limit": 1, "alone": True}, among_groups=among_groups)
    return rows


def _take(values: Mapping[str, Any], *, among_groups: bool) -> Script[Sequence[Row]]:
    return (yield from claim_limited(values)) if among_groups else (yield "claim_jobs", values)


def _claim_values(claiming: ClaimRequest) -> dict[str, Any]:
    return holder_values(claiming.holder) | {
        "pool_id": claiming.pool_id,
        "lease": to_us(claiming.lease),
        "limit": claiming.limit,
        "ahead": claiming.ahead,
        "alone": claiming.alone and claiming.limit == 1,
        "capabilities": dump(claiming.capabilities) if claiming.capabilities else "[]",
        "types": dump(claiming.types) if claiming.types else "[]",
        "without": dump(claiming.without) if claiming.without else "[]",
    }


def _settle(
    holder: Holder, verdicts: Sequence[JobOutcome], numbers: Mapping[JobId, int], claiming: ClaimRequest | None
) -> Script[tuple[set[Token], set[PoolId], Sequence[Row]]]:
    first = one_outcome_per_job(verdicts)
    done = [verdict for verdict in first if verdict.outcome is AttemptOutcome.DONE and verdict.token.job_id in numbers]
    others = [verdict for verdict in first if verdict.outcome is not AttemptOutcome.DONE]
    accepted, pools = yield from settle_done(holder, done, numbers)
    if others:
        settled = yield from settle_locked(holder, others, numbers)
        accepted, pools = accepted | set(settled.held), pools | settled.pools
    return accepted, pools, (yield from _claim(claiming)) if claiming else ()


def settle_done(
    holder: Holder, verdicts: Sequence[JobOutcome], numbers: Mapping[JobId, int]
) -> Script[tuple[set[Token], set[PoolId]]]:
    """Mark jobs as done, in the transaction that runs this script. Returns the tokens of the marked jobs, and the pools in
    which jobs that waited for them became ready. A job whose token is no longer valid is left unchanged."""
    if not verdicts:
        return set(), set()
    outcomes = [(numbers[verdict.token.job_id], verdict.token.epoch, result_text(verdict.result)) for verdict in verdicts]
    rows = yield "settle_done", holder_values(holder) | {"verdicts": rows_json(outcomes)}
    yield from note_ended((row["pool_id"], JobStatus.DONE) for row in rows)
    done = {row["seq"] for row in rows}
    pools = yield from pass_on_done([row["seq"] for row in rows if row["has_children"]])
    return {verdict.token for verdict in verdicts if numbers[verdict.token.job_id] in done}, pools
