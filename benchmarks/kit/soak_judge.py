"""Checks the result of a soak test: every job, its attempts and the journal. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from drumbeat.core.job import Attempt, AttemptOutcome, Job, JobId, JobStatus

FAILURES = (AttemptOutcome.FAILED, AttemptOutcome.TIMED_OUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One job at the end of a soak test."""

    job: Job
    attempts: Sequence[Attempt]
    accepted: Sequence[int]  #: epochs under which a worker's DONE was accepted
    refused: Sequence[int]  #: epochs under which a result was refused


def records(jobs: Iterable[tuple[Job, Sequence[Attempt]]], journal: Iterable[Mapping[str, Any]]) -> list[Record]:
    """Return the jobs, each with the store's answers to its workers."""
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
    """Return the violations of the queue's guarantees."""
    there = Counter(record.job.job_id for record in found)
    lost = [f"{job_id} was pushed but does not exist" for job_id in pushed if not there[job_id]]
    twice = [f"{job_id} exists {times} times" for job_id, times in there.items() if times > 1]
    return [*lost, *twice, *(fault for record in found for fault in _faults(record))]


def foreign(found: Sequence[Record], well: Set[str]) -> list[str]:
    """Return attempts that another pool's worker made, and crashes of jobs whose worker is healthy (``well``).

    Expired leases are excluded: a worker that got no processor for longer than its lease loses its jobs.
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


def too_early(
    found: Sequence[Record], links: Mapping[JobId, Sequence[JobId]], ends: Mapping[JobId, datetime | None]
) -> list[str]:
    """Return the jobs that began before one of their parents had ended, by the store's clock."""
    began = {record.job.job_id: min((each.started_at for each in record.attempts), default=None) for record in found}
    return [
        f"{job_id} began at {start}, before its parent {parent} ended at {ends[parent]}"
        for job_id, parents in links.items()
        for parent in parents
        if (start := began.get(job_id)) is not None and ((end := ends[parent]) is None or start < end)
    ]


def repeated_steps(journal: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the durable steps that a later claim of their job ran again after they had finished.

    A worker that was paused and has lost its job may still begin a step; its result is refused.
    """
    finished: dict[tuple[str, int], int] = {}  #: the first claim that finished a step, by job and step
    repeated: list[str] = []
    for line in journal:
        place = (line["job"], line.get("step", 0))
        if line["what"] == "step finished":
            finished.setdefault(place, line["epoch"])
        elif line["what"] == "step began" and finished.get(place, line["epoch"]) < line["epoch"]:
            repeated.append(f"step {place[1]} of {place[0]} ran again in claim {line['epoch']} after claim {finished[place]}")
    return repeated


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
        yield f"{job.job_id} is {job.status}, but {done} attempts are done"
    if outcomes[None]:
        yield f"{job.job_id}: {outcomes[None]} attempts have no outcome"
    lost = job.crashes + job.suspicions
    if (job.attempts, lost, job.failures) != (done + crashed + failed, crashed, failed):
        counted = f"attempts {job.attempts}, crashes and suspicions {lost}, failures {job.failures}"
        yield f"{job.job_id} has {counted}; its attempts give {done + crashed + failed}, {crashed}, {failed}"
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
    """Check that only the last claim's result was accepted: the result has its claim's epoch, the job's row the last epoch."""
    job = record.job
    if job.status is JobStatus.DONE and job.result["epoch"] != job.lease_epoch:
        yield f"{job.job_id}: claim {job.result['epoch']} finished it, but claim {job.lease_epoch} held it: a late result"
    if len(record.accepted) > 1:
        yield f"{job.job_id} was accepted as done {len(record.accepted)} times: by claims {list(record.accepted)}"
    if any(epoch != job.lease_epoch for epoch in record.accepted):
        yield f"{job.job_id}: results of claims {list(record.accepted)} were accepted, the last claim was {job.lease_epoch}"
