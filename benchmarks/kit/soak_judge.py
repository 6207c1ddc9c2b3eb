"""The judge of a soak: reads every job, its attempts and the journal, and says what cannot be. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from drumbeat.core.job import Attempt, AttemptOutcome, Job, JobId, JobStatus

FAILURES = (AttemptOutcome.FAILED, AttemptOutcome.TIMED_OUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One job at the end of a soak."""

    job: Job
    attempts: Sequence[Attempt]
    accepted: Sequence[int]  #: epochs under which a worker was told that its DONE counts
    refused: Sequence[int]  #: epochs under which a result was refused


def records(jobs: Iterable[tuple[Job, Sequence[Attempt]]], journal: Iterable[Mapping[str, Any]]) -> list[Record]:
    """Jobs with what their workers heard of them."""
    heard: dict[tuple[str, str], list[int]] = {}
    for line in journal:
        if line["what"] == "refused" or line.get("outcome") == AttemptOutcome.DONE:
            heard.setdefault((line["job"], line["what"]), []).append(line["epoch"])
    return [
        Record(
            job=job,
            attempts=attempts,
            accepted=heard.get((job.job_id, "accepted"), ()),
            refused=heard.get((job.job_id, "refused"), ()),
        )
        for job, attempts in jobs
    ]


def faults(pushed: Iterable[JobId], found: Sequence[Record]) -> list[str]:
    """What must not be; nothing, if every promise was kept."""
    there = Counter(record.job.job_id for record in found)
    lost = [f"{job_id} was pushed, and is gone" for job_id in pushed if not there[job_id]]
    twice = [f"{job_id} is there {times} times" for job_id, times in there.items() if times > 1]
    return [*lost, *twice, *(fault for record in found for fault in _faults(record))]


def foreign(found: Sequence[Record], well: Set[str]) -> list[str]:
    """Attempts that another pool's worker made or ended: nobody else may crash what a worker holds that is ``well``.

    A worker that was given no processor for longer than its lease loses its jobs by that, and by nobody's fault.
    """
    attempts = [(record.job, attempt) for record in found for attempt in record.attempts]
    strange = [
        f"{job.job_id} of {job.pool_id} was held by {attempt.worker_id} of {attempt.worker_pool}: foreign"
        for job, attempt in attempts
        if attempt.worker_pool != job.pool_id
    ]
    crashed = [
        (job, attempt) for job, attempt in attempts if attempt.outcome is AttemptOutcome.CRASHED and attempt.worker_id in well
    ]
    return strange + [
        f"{job.job_id} was taken from {attempt.worker_id} of {job.pool_id}, which is alive: foreign ({attempt.error})"
        for job, attempt in crashed
        if "ran out" not in (attempt.error or "")
    ]


def _faults(record: Record) -> Iterator[str]:
    job, outcomes = record.job, Counter(attempt.outcome for attempt in record.attempts)
    done, crashed, failed = (
        outcomes[AttemptOutcome.DONE],
        outcomes[AttemptOutcome.CRASHED],
        sum(outcomes[each] for each in FAILURES),
    )
    if job.status not in (JobStatus.DONE, JobStatus.POISONED):
        yield f"{job.job_id} is {job.status}: neither done nor poisoned"
    if done != (job.status is JobStatus.DONE):
        yield f"{job.job_id} is {job.status}, and {done} attempts were done"
    if outcomes[None]:
        yield f"{job.job_id}: {outcomes[None]} attempts have no end"
    lost = job.crashes + job.suspicions
    if (job.attempts, lost, job.failures) != (done + crashed + failed, crashed, failed):
        counted = f"attempts {job.attempts}, crashes and suspicions {lost}, failures {job.failures}"
        yield f"{job.job_id} says {counted}; its attempts say {done + crashed + failed}, {crashed}, {failed}"
    yield from _poison(job)
    yield from _late(record)


def _poison(job: Job) -> Iterator[str]:
    lost_last_alone = job.crashes > 0 and job.crashes + job.suspicions >= job.max_crashes
    at_limit = lost_last_alone or job.failures == job.max_attempts
    if (job.status is JobStatus.POISONED) != at_limit:
        yield (
            f"{job.job_id} is {job.status} after {job.crashes} crashes and {job.suspicions} suspicions "
            f"of {job.max_crashes}, and {job.failures} of {job.max_attempts} failures"
        )


def _late(record: Record) -> Iterator[str]:
    """Only the last claim's result may count: its number is in the result, the job's own in its row."""
    job = record.job
    if job.status is JobStatus.DONE and job.result["epoch"] != job.lease_epoch:
        yield f"{job.job_id}: claim {job.result['epoch']} finished it, though claim {job.lease_epoch} held it: a late result"
    if len(record.accepted) > 1:
        yield f"{job.job_id} was told done {len(record.accepted)} times: under {list(record.accepted)}"
    if any(epoch != job.lease_epoch for epoch in record.accepted):
        yield f"{job.job_id}: a result of claim {list(record.accepted)} was accepted, the last was {job.lease_epoch}"
