"""Jobs that wait for other jobs, in memory: their links, and what happens to them when the other jobs end."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from drumbeat.core.job import ENDED, UNFINISHED, IfFailed, Job, JobId, JobStatus, NewJob
from drumbeat.core.pool import PoolId
from drumbeat.store.flow_rules import (
    FAILED,
    NEED_PARENTS,
    READY,
    SKIPPED,
    FlowState,
    ParentCounts,
    no_parent,
    skip_reason,
    state_after,
    state_when_done,
    state_when_requeued,
)
from drumbeat.store.memory.ready import JobRows, changed_job
from drumbeat.store.memory.state import MemoryState


def expect_parents(state: MemoryState, rows: JobRows, jobs: Sequence[NewJob]) -> None:
    """Raise NotFound if a new job waits for a job that neither exists nor is in the same push. ``rows``: the pool's jobs."""
    pushed = {job.job_id for job in jobs}
    for job in jobs:
        for parent in job.after if rows.existing(job) is None else ():
            if parent not in pushed and state.find_job(parent) is None:
                raise no_parent(parent)


def parents_within(rows: JobRows, jobs: Sequence[NewJob]) -> set[JobId]:
    """Return the ids of jobs for which other jobs of the same push wait. Leaves out those that only jobs with a unique key
    wait for, since such a job may not be added. ``rows``: the pool's jobs."""
    first = {job.job_id: job for job in reversed(jobs) if job.after and job.job_id is not None}
    children = (
        job
        for job in jobs
        if job.after and job.unique_key is None and job is (first.get(job.job_id, job) if job.job_id else job)
    )
    return {parent for job in children if rows.existing(job) is None for parent in job.after}


def link(state: MemoryState, job_id: JobId, parents: Sequence[JobId], pushed: NewJob) -> dict[str, Any]:
    """Link a new job to its parents. Returns the fields of its row that follow from this: among them the status, which is
    waiting, pending or cancelled, according to the parents' states."""
    state.parents[job_id] = tuple(dict.fromkeys(parents))
    found = _jobs(state, state.parents[job_id])
    for parent in found:
        state.children.setdefault(parent.job_id, {})[job_id] = None
        if not parent.has_children:
            state.rows(parent.pool_id).jobs.put(replace(parent, has_children=True))
    counts = ParentCounts.of([parent.status for parent in found])
    after = state_after(counts, after_any=pushed.after_any, if_failed=pushed.if_failed)
    return _fields(state, job_id, after) | {"after_any": pushed.after_any, "if_failed": pushed.if_failed}


def pass_on_ends(state: MemoryState, jobs: Iterable[Job]) -> None:
    """Update the jobs that wait for those of these jobs that have ended. If some are skipped, update the jobs that wait for
    them, too."""
    ended = [job for job in jobs if job.has_children and job.status in ENDED]
    done = Counter(chain.from_iterable(state.children.get(job.job_id, ()) for job in ended if job.status is JobStatus.DONE))
    for job_id, parents in done.items():
        child = state.find_job(job_id)
        if child is not None and _waits(child):
            _pass_on(state, child, state_when_done(child.waits_for, parents))
    failed = [job for job in ended if job.status is not JobStatus.DONE]
    while failed:
        parent = failed.pop()
        for child in filter(_waits, _jobs(state, state.children.get(parent.job_id, ()))):
            after = _pass_on(state, child, _after_failure(state, child))
            if after.status is JobStatus.CANCELLED and after.has_children:
                failed.append(after)


def _waits(job: Job) -> bool:
    return job.status is JobStatus.WAITING and job.if_failed is not None


def _pass_on(state: MemoryState, child: Job, found: FlowState) -> Job:
    """Write the new state of a job that waits. Returns the job after the change."""
    now = state.now()
    start = max(child.not_before or now, now) if found is READY else child.not_before
    after = changed_job(child, **_fields(state, child.job_id, found), not_before=start)
    state.rows(child.pool_id).jobs.keep(after, now)
    if found is READY:
        state.subscribers.notify(after.pool_id)
    return after


def wait_again(state: MemoryState, requeued: Job) -> Job:
    """Return a requeued job as waiting or pending, according to the states of its parents: see ``state_when_requeued``."""
    if requeued.if_failed is None:
        return requeued
    found = state_when_requeued(_count(state, requeued.job_id), after_any=requeued.after_any, if_failed=requeued.if_failed)
    return replace(requeued, status=found.status, waits_for=found.waits_for)


def reopen(state: MemoryState, requeued: Job) -> None:
    """Let jobs wait again for a failed parent that was requeued, if it had counted as done for them and they still wait."""
    for child in _jobs(state, state.children.get(requeued.job_id, ())):
        if child.status is JobStatus.WAITING and child.if_failed is IfFailed.RUN and not child.after_any:
            state.rows(child.pool_id).jobs.put(replace(child, waits_for=child.waits_for + 1))


def is_needed(state: MemoryState, job_id: JobId) -> bool:
    """Whether a job has a child that may still run: see ``NEED_PARENTS``."""
    return any(child.status in NEED_PARENTS for child in _jobs(state, state.children.get(job_id, ())))


def child_elsewhere(state: MemoryState, pool_id: PoolId) -> Job | None:
    """Return an unfinished job of another pool that depends on a job of this pool; None if there is none."""
    rows = state.pools.get(pool_id)
    parents = [job.job_id for job in rows.jobs.jobs.values() if job.has_children] if rows else []
    children = (child for parent in parents for child in _jobs(state, state.children.get(parent, ())))
    return next((child for child in children if child.pool_id != pool_id and child.status in UNFINISHED), None)


def _after_failure(state: MemoryState, child: Job) -> FlowState:
    """Return the state of a waiting job after one of its parents has failed."""
    if child.if_failed is IfFailed.RUN:
        return state_when_done(child.waits_for, 1)
    if child.if_failed is not IfFailed.SKIP:
        return FlowState(JobStatus.WAITING, child.waits_for)
    return state_after(_count(state, child.job_id), after_any=child.after_any, if_failed=child.if_failed)


def _fields(state: MemoryState, job_id: JobId, found: FlowState) -> dict[str, Any]:
    """Return the fields of a job's row that change when it gets this state."""
    if found is not SKIPPED:
        return {"status": found.status, "waits_for": found.waits_for}
    failed = next(parent for parent in _jobs(state, state.parents[job_id]) if parent.status in FAILED)
    reason = skip_reason(failed.job_id, failed.status)
    return {"status": JobStatus.CANCELLED, "waits_for": 0, "last_error": reason, "finished_at": state.now()}


def _count(state: MemoryState, job_id: JobId) -> ParentCounts:
    return ParentCounts.of([parent.status for parent in _jobs(state, state.parents[job_id])])


def _jobs(state: MemoryState, job_ids: Sequence[JobId] | dict[JobId, None]) -> list[Job]:
    """Return the jobs with these ids that still exist."""
    return [job for job in map(state.find_job, job_ids) if job]
