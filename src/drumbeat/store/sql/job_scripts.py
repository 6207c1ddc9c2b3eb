"""Scripts of named queries that claim jobs, record their outcomes and take back lost jobs, each in one transaction."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from drumbeat.core.errors import AlreadyExists
from drumbeat.core.job import ENDED, AttemptOutcome, Job, JobId, JobOutcome, JobStatus, NewJob, Token
from drumbeat.core.lease import Fence
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import Holder
from drumbeat.store.flow_rules import no_parent
from drumbeat.store.job_outcomes import apply_outcome, apply_worker_loss, lost_attempt_outcome
from drumbeat.store.sql.database import Row, Rows, Script, check_fence
from drumbeat.store.sql.flow_scripts import ended_parents, lock_known_parents, pass_on_ends
from drumbeat.store.sql.job_rows import attempt_row, holder_values, job_of, job_row, row_id, rows_json, tokens_json
from drumbeat.store.sql.rows import at_us, instant

Ended = tuple[Job, Job, AttemptOutcome, str | None]  #: a job before and after the end of an attempt, the outcome and the error


def refused_tokens(verdicts: Sequence[JobOutcome], accepted: set[Token]) -> tuple[Token, ...]:
    """Return the tokens of reported outcomes that the store did not accept, such as a second report on the same claim."""
    if len(accepted) == len(verdicts):
        return ()
    left = set(accepted)
    refused: list[Token] = []
    for verdict in verdicts:
        if verdict.token in left:
            left.discard(verdict.token)
        else:
            refused.append(verdict.token)
    return tuple(refused)


def one_outcome_per_job(verdicts: Sequence[JobOutcome]) -> list[JobOutcome]:
    """Keep one reported outcome per job: the first one for the job's latest claim."""
    latest: dict[JobId, JobOutcome] = {}
    for verdict in verdicts:
        known = latest.setdefault(verdict.token.job_id, verdict)
        if known.token.epoch < verdict.token.epoch:
            latest[verdict.token.job_id] = verdict
    return [*latest.values()]


def existing_job(pool_id: PoolId, job: Mapping[str, Any]) -> Script[JobId | None]:
    """Return the id of the existing job with the new job's id or unique key; None if there is none. Raises AlreadyExists if
    the job with this id is in another pool."""
    named = (yield "find_job_by_id", {"job_id": job["given_id"]}) if job["given_id"] is not None else ()
    if named and named[0]["pool_id"] != pool_id:
        raise AlreadyExists(f"job {job['given_id']!r} already exists in pool {named[0]['pool_id']!r}; choose another id")
    if named or job["unique_key"] is None:
        return row_id(named[0]) if named else None
    keyed = yield "find_holder_of_key", {"pool_id": pool_id, "unique_key": job["unique_key"]}
    return row_id(keyed[0]) if keyed else None


def refuse_missing_parents(pool_id: PoolId, jobs: Sequence[NewJob]) -> Script[None]:
    """Raise NotFound if a parent of a new job does not exist. In a transaction of the caller this check runs before the push:
    otherwise a caller that ignores the error and commits would leave a job that waits for ever."""
    missing = yield from lock_known_parents(jobs)
    for job in jobs if missing else ():
        gone = next((parent for parent in job.after if parent in missing), None)
        names = {"given_id": job.job_id, "unique_key": job.unique_key}
        if gone is not None and (yield from existing_job(pool_id, names)) is None:
            raise no_parent(gone)


def claim_limited(values: Mapping[str, Any]) -> Script[Sequence[Row]]:
    """Claim jobs, including jobs of groups with a limit or rate. One query considers only a bounded number of jobs, so it is
    repeated until ``limit`` jobs are claimed or it claims none. Each query skips groups that earlier queries have filled."""
    yield "forget_claims", {"pool_id": values["pool_id"], "now": values["now"]}
    taken: list[Row] = []
    while len(taken) < values["limit"]:
        rows = yield "claim_limited", {**values, "limit": values["limit"] - len(taken)}
        if not rows:
            break
        taken += rows
        yield from _note_claims(rows)
    return taken


def _note_claims(rows: Rows) -> Script[None]:
    """Record each claim of a job in a rate-limited group, so that later claims can count it."""
    for row in rows:
        if row["rate_count"] is not None and row["group_key"] is not None:
            yield (
                "note_claims",
                {
                    "pool_id": row["pool_id"],
                    "group_key": row["group_key"],
                    "seq": row["seq"],
                    "n": row["lease_epoch"],
                    "at": row["claimed_at"],
                    "until": row["claimed_at"] + row["rate_us"],
                },
            )


def note_ended(ends: Iterable[tuple[PoolId, JobStatus]], change: int = 1) -> Script[None]:
    """Add ended jobs to the stored counts by pool and status; with a ``change`` of -1 subtract deleted or requeued jobs.

    Counts are changed in a fixed order, so that two transactions that change the same counts cannot deadlock.
    """
    counted = Counter((pool_id, str(status)) for pool_id, status in ends if status in ENDED)
    for (pool_id, status), jobs in sorted(counted.items()):
        yield "note_ended", {"pool_id": pool_id, "status": status, "jobs": jobs * change}


@dataclass(frozen=True, slots=True)
class LockedSettlement:
    """What ``settle_locked`` changed: the jobs that the worker still held, by token, and the pools to notify."""

    held: Mapping[Token, Job]  #: as they were before
    pools: frozenset[PoolId]


def settle_locked(holder: Holder, verdicts: Sequence[JobOutcome], numbers: Mapping[JobId, int]) -> Script[LockedSettlement]:
    """Record outcomes of any kind: lock the jobs, decide if each is tried again, save them, and update the jobs that wait for
    them. Ignores the outcomes of jobs that the worker no longer holds."""
    values = holder_values(holder) | {"tokens": tokens_json((verdict.token for verdict in verdicts), numbers)}
    held = {job.token: job for job in map(job_of, (yield "lock_held", values))}
    now = instant((yield "now", {})[0]["now"])
    ended = [
        (held[verdict.token], apply_outcome(held[verdict.token], verdict, now), verdict.outcome, verdict.error)
        for verdict in verdicts
        if verdict.token in held
    ]
    pools = yield from _save(ended, numbers)
    return LockedSettlement(held, frozenset(pools | {job.pool_id for job in held.values()}))


def release(holder: Holder, error: str, fence: Fence | None, *, charge: bool) -> Script[tuple[list[Job], set[PoolId]]]:
    yield from check_fence(fence)
    rows = yield "lock_jobs_of_worker", holder_values(holder)
    return (yield from _take_back(rows, lambda job: error, charge=charge))


def expire(limit: int) -> Script[tuple[list[Job], set[PoolId]]]:
    """Extend leases that expired for the first time, and take back jobs with a lease that expired again."""
    yield "extend_leases", {"limit": limit}
    rows = yield "lock_expired", {"limit": limit}
    return (yield from _take_back(rows, lambda job: f"the lease of {job.lease_owner} ran out"))


def _take_back(rows: Rows, why: Callable[[Job], str], *, charge: bool = True) -> Script[tuple[list[Job], set[PoolId]]]:
    """Put the jobs of ended workers back in the queue, or poison jobs that crashed too many workers; ``why`` returns a job's
    error. Returns the jobs after the change, and the pools in which jobs may have become ready."""
    now = instant((yield "now", {})[0]["now"])
    numbers: dict[JobId, int] = {}
    ended: list[Ended] = []
    begun: dict[Holder | None, int] = {}
    for row in rows:
        job = job_of(row)
        numbers[job.job_id] = row["seq"]
        if charge and job.holder is not None and job.holder not in begun:
            begun[job.holder] = yield from _count_begun(job.holder)
        others = begun.get(job.holder, 1) - 1
        outcome, error = lost_attempt_outcome(job, why(job), others, charge=charge)
        ended.append((job, apply_worker_loss(job, error, now, in_company=others > 0, charge=charge), outcome, error))
    pools = yield from _save(ended, numbers)
    return [after for _, after, _, _ in ended], pools | {job.pool_id for job, _, _, _ in ended}


def _count_begun(holder: Holder) -> Script[int]:
    """Return how many jobs a lost worker had begun. Stores the number with each of these jobs: if only some of them are
    taken back now, the same number is used when the others are taken back later."""
    [found] = yield "count_begun", holder_values(holder)
    if found["jobs"] > 1:
        yield "note_jobs_begun", holder_values(holder) | {"jobs": found["jobs"]}
    return max(int(found["jobs"]), int(found["in_company"]))


def _save(ended: Sequence[Ended], numbers: Mapping[JobId, int]) -> Script[set[PoolId]]:
    """Save jobs after their attempts ended, add each attempt to ``job_attempts`` unless its job is done, and update the jobs
    that wait for them. Returns the pools in which jobs became ready."""
    if not ended:
        return set()
    now = at_us(ended[0][1].finished_at) or (yield "now", {})[0]["now"]
    yield "save_jobs", {"rows": rows_json([job_row(after, numbers[after.job_id], now) for _, after, _, _ in ended])}
    yield from note_ended((after.pool_id, after.status) for _, after, _, _ in ended)
    logged = [each for each in ended if each[1].status is not JobStatus.DONE]
    rows = [attempt_row(job, numbers[job.job_id], outcome, error, now) for job, _, outcome, error in logged]
    if rows:
        yield "add_attempts", {"rows": rows_json(rows)}
    parents = ended_parents((numbers[after.job_id], after.status, after.has_children) for _, after, _, _ in ended)
    return (yield from pass_on_ends(parents))
