"""Workflows: builds jobs that wait for each other, and works on all jobs of a workflow, or on a job and its descendants."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from graphlib import TopologicalSorter
from uuid import uuid4

from drumbeat.core.errors import InvalidInput, JobEnded, NotFound
from drumbeat.core.job import ENDED, UNFINISHED, IfFailed, Job, JobId, JobStatus, NewJob
from drumbeat.core.pool import PoolId
from drumbeat.pool.job_options import check_key
from drumbeat.store.flow_rules import FAILED
from drumbeat.store.interface import Store

Stage = NewJob | Sequence[NewJob]  #: one job, or several that run at the same time
_PAGE = 1000
_MOST_ASKED = 100  #: waiting jobs whose parents are read to find a failed one
_BATCH = 500  #: jobs that are cancelled in one transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowProgress:
    """How many jobs of a workflow are in each state."""

    workflow_id: str
    counts: Mapping[JobStatus, int]

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def ended(self) -> int:
        return sum(self.counts.get(status, 0) for status in ENDED)

    @property
    def share(self) -> float:
        """The share of the workflow's jobs that have ended, from 0 to 1; 1 for a workflow without jobs."""
        return self.ended / self.total if self.total else 1.0


def chain(*stages: Stage, workflow_id: str | None = None) -> list[NewJob]:
    """Return jobs that run one after the other, to be pushed together. A stage is a job or a list of jobs: the jobs of one
    stage run at the same time, and the next stage waits for all of them. Raises InvalidInput for an empty stage and for an
    empty or invalid ``workflow_id``.

    Jobs without an id get one, so that they can name each other; a job that has an id or a workflow keeps it.
    """
    flow = f"workflow-{uuid4().hex}" if workflow_id is None else check_key("workflow_id", workflow_id)
    jobs: list[NewJob] = []
    before: tuple[JobId, ...] = ()
    for place, stage in enumerate(stages, 1):
        members = [stage] if isinstance(stage, NewJob) else [*stage]
        if not members:
            raise InvalidInput(f"expected at least one job in each stage, got none in stage {place}; leave the stage out")
        linked = [_linked(job, before, flow) for job in members]
        before = tuple(job.job_id for job in linked if job.job_id is not None)
        jobs += linked
    return jobs


def group(*jobs: NewJob, callback: NewJob | None = None, workflow_id: str | None = None) -> list[NewJob]:
    """Return jobs that run at the same time, and a ``callback`` that runs once after all of them, to be pushed together."""
    return chain(jobs, *([callback] if callback is not None else []), workflow_id=workflow_id)


def _linked(job: NewJob, before: tuple[JobId, ...], workflow_id: str) -> NewJob:
    return replace(
        job,
        job_id=job.job_id or JobId(f"job-{uuid4().hex}"),
        after=(*job.after, *before),
        workflow_id=job.workflow_id if job.workflow_id is not None else workflow_id,
    )


async def workflow_progress(store: Store, workflow_id: str) -> WorkflowProgress:
    return WorkflowProgress(workflow_id=workflow_id, counts=await store.jobs.workflow_counts(workflow_id))


async def find_workflow(store: Store, workflow_id: str) -> WorkflowProgress:
    """Count the jobs of a workflow by state. Raises NotFound if no job belongs to it."""
    found = await workflow_progress(store, workflow_id)
    if not found.total:
        raise NotFound(
            f"there is no workflow {workflow_id!r}: no job belongs to it, or its jobs were deleted when they were old"
        )
    return found


async def cancel_workflow(store: Store, workflow_id: str) -> list[Job]:
    """Cancel all unfinished jobs of a workflow, also jobs pushed meanwhile. Returns these jobs; a running job is only
    asked to stop. The jobs pushed last are cancelled first, so that no job starts because its parent was cancelled."""
    seen: set[JobId] = set()
    cancelled: list[Job] = []
    while True:
        unfinished = await jobs_of_workflow(store, workflow_id, sorted(UNFINISHED))
        new = [job.job_id for job in unfinished if job.job_id not in seen]
        if not new:
            return cancelled
        seen.update(new)
        cancelled += await cancel_jobs(store, new[::-1])


async def cancel_jobs(store: Store, ids: Sequence[JobId]) -> list[Job]:
    """Cancel jobs in this order. Returns those that are now cancelled (also if they were before) or were asked to stop."""
    found: dict[JobId, Job] = {}
    for start in range(0, len(ids), _BATCH):
        batch = ids[start : start + _BATCH]
        found |= {job.job_id: job for job in await store.jobs.cancel(batch)}
        for job_id in batch:
            if job_id not in found:
                with suppress(NotFound):  # deleted meanwhile
                    found[job_id] = await store.jobs.get(job_id)
    return [job for job in found.values() if job.status is JobStatus.CANCELLED or job.cancel_requested]


async def descendants(store: Store, job_id: JobId) -> list[Job]:
    """Return a job, and all jobs that wait for it directly or through other jobs; parents before children. Raises NotFound."""
    found = {job_id: await store.jobs.get(job_id)}
    parents: dict[JobId, set[JobId]] = {job_id: set()}
    for parent in (queue := [job_id]):
        for child in await _all_children(store, parent):
            if child.job_id not in found:
                queue.append(child.job_id)
            found[child.job_id] = child
            parents.setdefault(child.job_id, set()).add(parent)
    return [found[each] for each in TopologicalSorter(parents).static_order()]


async def cancel_subtree(store: Store, job_id: JobId) -> list[Job]:
    """Cancel a job and all jobs that wait for it directly or through other jobs. Returns the jobs that were cancelled or, if
    they run, asked to stop."""
    below = await descendants(store, job_id)
    return await cancel_jobs(store, [job.job_id for job in reversed(below) if job.status in UNFINISHED])


async def requeue_subtree(store: Store, job_id: JobId) -> list[Job]:
    """Requeue those of a job and its descendants that are poisoned or cancelled. Each waits for its parents again. Returns the
    requeued jobs, as they were before."""
    requeued: list[Job] = []
    for job in await descendants(store, job_id):
        if job.status in FAILED and await store.jobs.requeue(PoolId(job.pool_id), [job.job_id]):
            requeued.append(job)
    return requeued


async def check_not_blocked(store: Store, job: Job) -> None:
    """Raise JobEnded if a waiting job cannot run until a poisoned or cancelled job is requeued."""
    if failed := await _blocking_parent(store, job):
        why = f": {failed.last_error.splitlines()[0]}" if failed.last_error else ""
        raise JobEnded(
            f"job {job.job_id} waits for job {failed.job_id}, which is {failed.status}{why}; requeue that job to go on"
        )


async def _blocking_parent(store: Store, job: Job) -> Job | None:
    """Return a failed job for which a waiting job waits, perhaps through other jobs, so that it must be requeued first."""
    queue = [job]
    for waiting in queue:
        parents = await store.jobs.parents(waiting.job_id)
        failed = [parent for parent in parents if parent.status in FAILED and waiting.if_failed is not IfFailed.RUN]
        if failed and (not waiting.after_any or len(failed) == len(parents)):
            return failed[0]
        if not waiting.after_any and len(queue) < _MOST_ASKED:
            queue += [parent for parent in parents if parent.status is JobStatus.WAITING]
    return None


async def jobs_of_workflow(store: Store, workflow_id: str, statuses: Sequence[JobStatus] = ()) -> list[Job]:
    """Return all jobs of a workflow that have one of the statuses, or any, in the order of pushing."""
    jobs: list[Job] = []
    while page := await store.jobs.of_workflow(
        workflow_id, statuses=statuses, after=jobs[-1].job_id if jobs else None, limit=_PAGE
    ):
        jobs += page
    return jobs


async def _all_children(store: Store, job_id: JobId) -> Sequence[Job]:
    return await store.jobs.children(job_id, limit=1_000_000)
