"""What becomes of jobs, as scripts that every SQL database runs in one transaction."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from drumbeat.core.errors import AlreadyExists
from drumbeat.core.job import ENDED, AttemptOutcome, Job, JobId, JobOutcome, JobStatus, Token
from drumbeat.core.lease import Fence
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import Holder
from drumbeat.store.sql.database import Row, Rows, Script, check_fence
from drumbeat.store.sql.job_rows import attempt_row, holder_values, job_of, job_row, row_id, rows_json, tokens_json
from drumbeat.store.sql.rows import at_us, instant
from drumbeat.store.verdicts import how_lost, lost, settled

Ended = tuple[Job, Job, AttemptOutcome, str | None]  #: a job before and after the end of an attempt, and how it ended


def stale(verdicts: Sequence[JobOutcome], good: set[Token]) -> tuple[Token, ...]:
    """Those that were not heard; of two on the same claim, the second."""
    left = set(good)
    refused: list[Token] = []
    for verdict in verdicts:
        if verdict.token in left:
            left.discard(verdict.token)
        else:
            refused.append(verdict.token)
    return tuple(refused)


def first_words(verdicts: Sequence[JobOutcome]) -> list[JobOutcome]:
    """One verdict on each job: the first on its latest claim."""
    latest: dict[JobId, JobOutcome] = {}
    for verdict in verdicts:
        known = latest.setdefault(verdict.token.job_id, verdict)
        if known.token.epoch < verdict.token.epoch:
            latest[verdict.token.job_id] = verdict
    return [*latest.values()]


def there_already(pool_id: PoolId, job: Mapping[str, Any]) -> Script[JobId | None]:
    """The job in whose place another was not kept, if it still is there. Raises AlreadyExists where it is another pool's."""
    named = (yield "find_job_by_id", {"job_id": job["given_id"]}) if job["given_id"] is not None else ()
    if named and named[0]["pool_id"] != pool_id:
        raise AlreadyExists(f"pool {named[0]['pool_id']!r} has a job {job['given_id']!r} already; choose another id")
    if named or job["unique_key"] is None:
        return row_id(named[0]) if named else None
    keyed = yield "find_holder_of_key", {"pool_id": pool_id, "unique_key": job["unique_key"]}
    return row_id(keyed[0]) if keyed else None


def claim_limited(values: Mapping[str, Any]) -> Script[Sequence[Row]]:
    """Claim among limited groups. One look sees so many jobs: while it gave too few, what lies behind the groups that it
    has filled is looked at too."""
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
    """For groups that have a rate."""
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
    """Count jobs that have ended, or with a ``change`` of -1 such as had ended and are so no longer; of others nothing.

    Always in the same order: two transactions that count in the same rows wait for each other, and never for good.
    """
    counted = Counter((pool_id, str(status)) for pool_id, status in ends if status in ENDED)
    for (pool_id, status), jobs in sorted(counted.items()):
        yield "note_ended", {"pool_id": pool_id, "status": status, "jobs": jobs * change}


def settle_others(holder: Holder, verdicts: Sequence[JobOutcome], numbers: Mapping[JobId, int]) -> Script[dict[Token, Job]]:
    """Verdicts after which a job is not simply done: read and locked, judged by the rule all stores share, written back."""
    values = holder_values(holder) | {"tokens": tokens_json((verdict.token for verdict in verdicts), numbers)}
    held = {job.token: job for job in map(job_of, (yield "lock_held", values))}
    now = instant((yield "now", {})[0]["now"])
    ended = [
        (held[verdict.token], settled(held[verdict.token], verdict, now), verdict.outcome, verdict.error)
        for verdict in verdicts
        if verdict.token in held
    ]
    yield from _save(ended, numbers)
    return held


def release(holder: Holder, error: str, fence: Fence | None) -> Script[list[Job]]:
    yield from check_fence(fence)
    rows = yield "lock_jobs_of_worker", holder_values(holder)
    return (yield from _lose(rows, lambda job: error))


def expire(limit: int) -> Script[list[Job]]:
    """What ran out for the first time is extended; what ran out again is taken back."""
    yield "extend_leases", {"limit": limit}
    rows = yield "lock_expired", {"limit": limit}
    return (yield from _lose(rows, lambda job: f"the lease of {job.lease_owner} ran out"))


def _lose(rows: Rows, why: Callable[[Job], str]) -> Script[list[Job]]:
    """Take jobs back from workers that are lost."""
    now = instant((yield "now", {})[0]["now"])
    numbers: dict[JobId, int] = {}
    ended: list[Ended] = []
    begun: dict[Holder | None, int] = {}
    for row in rows:
        job = job_of(row)
        numbers[job.job_id] = row["seq"]
        if job.holder is not None and job.holder not in begun:
            begun[job.holder] = yield from _count_begun(job.holder)
        others = begun.get(job.holder, 1) - 1
        outcome, error = how_lost(job, why(job), others)
        ended.append((job, lost(job, error, now, in_company=others > 0), outcome, error))
    yield from _save(ended, numbers)
    return [after for _, after, _, _ in ended]


def _count_begun(holder: Holder) -> Script[int]:
    """How many jobs had begun on a worker that is lost: noted with each, since their leases may not run out together."""
    [found] = yield "count_begun", holder_values(holder)
    if found["jobs"] > 1:
        yield "note_company", holder_values(holder) | {"jobs": found["jobs"]}
    return max(int(found["jobs"]), int(found["in_company"]))


def _save(ended: Sequence[Ended], numbers: Mapping[JobId, int]) -> Script[None]:
    """Keep jobs as they are after an attempt, and those attempts that the job's own row does not tell."""
    if not ended:
        return
    now = at_us(ended[0][1].finished_at) or (yield "now", {})[0]["now"]
    yield "save_jobs", {"rows": rows_json([job_row(after, numbers[after.job_id], now) for _, after, _, _ in ended])}
    yield from note_ended((after.pool_id, after.status) for _, after, _, _ in ended)
    told = [each for each in ended if each[1].status is not JobStatus.DONE]
    rows = [attempt_row(job, numbers[job.job_id], outcome, error, now) for job, _, outcome, error in told]
    yield "add_attempts", {"rows": rows_json(rows)}
