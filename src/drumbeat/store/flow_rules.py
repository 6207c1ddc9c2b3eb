"""Rules that every store follows for jobs that wait for other jobs, as pure functions."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import chain

from drumbeat.core.errors import InvalidInput, NotFound, Refused
from drumbeat.core.job import UNFINISHED, IfFailed, JobId, JobStatus, JobsWithTemplate, NewJob
from drumbeat.core.pool import PoolId

FAILED = frozenset({JobStatus.POISONED, JobStatus.CANCELLED})
NEED_PARENTS = UNFINISHED | {JobStatus.POISONED}  #: jobs that may still run, so that their parents' results must be kept


@dataclass(frozen=True, slots=True, kw_only=True)
class ParentCounts:
    """How many parents of a job are in each kind of state."""

    unfinished: int = 0
    done: int = 0
    failed: int = 0  #: poisoned or cancelled

    @classmethod
    def of(cls, statuses: Sequence[JobStatus]) -> "ParentCounts":
        done, failed = statuses.count(JobStatus.DONE), sum(status in FAILED for status in statuses)
        return cls(unfinished=len(statuses) - done - failed, done=done, failed=failed)


@dataclass(frozen=True, slots=True)
class FlowState:
    """The state of a job with parents: waiting (and for how many more), pending, or cancelled because a parent failed."""

    status: JobStatus
    waits_for: int = 0


READY = FlowState(JobStatus.PENDING)
SKIPPED = FlowState(JobStatus.CANCELLED)


def state_after(parents: ParentCounts, *, after_any: bool, if_failed: IfFailed) -> FlowState:
    """Return the state of a job from the states of all its parents."""
    satisfied = parents.done + (parents.failed if if_failed is IfFailed.RUN else 0)
    left = parents.unfinished + parents.done + parents.failed - satisfied
    if satisfied and (after_any or not left):
        return READY
    if if_failed is IfFailed.SKIP and parents.failed and not (after_any and parents.unfinished):
        return SKIPPED
    return FlowState(JobStatus.WAITING, 1 if after_any else left) if left else READY


def state_when_requeued(parents: ParentCounts, *, after_any: bool, if_failed: IfFailed) -> FlowState:
    """Return the state of a requeued job from the states of all its parents. The job waits for unfinished and failed parents,
    even if the policy is ``skip``, which would cancel a new job. With ``run``, failed parents count as done."""
    policy = IfFailed.BLOCK if if_failed is IfFailed.SKIP else if_failed
    return state_after(parents, after_any=after_any, if_failed=policy)


def state_when_done(waits_for: int, done: int) -> FlowState:
    """Return the state of a job that waited for ``waits_for`` parents, after ``done`` of them have ended as it requires."""
    return FlowState(JobStatus.WAITING, waits_for - done) if waits_for > done else READY


def skip_reason(parent: JobId, status: JobStatus) -> str:
    return f"skipped, because job {parent} was {status} and this job runs only after it is done"


def has_links(jobs: Sequence[NewJob]) -> bool:
    """Whether any of these jobs waits for other jobs."""
    return bool(jobs.like.after) if isinstance(jobs, JobsWithTemplate) else any(job.after for job in jobs)


def may_free_a_key(jobs: Sequence[NewJob]) -> bool:
    """Whether a job may be skipped at once (a parent has failed), so that another of these jobs can have its unique key."""
    if not has_links(jobs):
        return False
    keys = Counter(job.unique_key for job in jobs)
    return any(job.after and job.if_failed is IfFailed.SKIP and job.unique_key and keys[job.unique_key] > 1 for job in jobs)


def links_within(jobs: Sequence[NewJob]) -> Counter[JobId | None]:
    """Return how many children each of these jobs has in the same push, by its chosen id. Leaves out jobs without children."""
    together = {job.job_id for job in jobs if job.job_id is not None}
    links = Counter[JobId | None](chain.from_iterable(dict.fromkeys(job.after) for job in jobs if job.after))
    return Counter({parent: count for parent, count in links.items() if parent in together})


def parents_first(jobs: Sequence[NewJob]) -> list[int]:
    """Return the positions of the jobs in an order in which parents come before children; other jobs keep their order.
    Raises InvalidInput if jobs wait for each other in a circle."""
    places: dict[JobId, int] = {}
    for place, job in enumerate(jobs):
        if job.job_id is not None:
            places.setdefault(job.job_id, place)
    if all(places.get(parent, -1) < place for place, job in enumerate(jobs) for parent in job.after):
        return [*range(len(jobs))]
    within = {
        place: [places[parent] for parent in job.after if parent in places] for place, job in enumerate(jobs) if job.after
    }
    try:
        TopologicalSorter(within).prepare()
    except CycleError as exc:
        circle = " → ".join(_id_and_type(jobs[place]) for place in exc.args[1])
        raise InvalidInput(
            f"expected jobs that do not wait for each other in a circle, got {circle} (each waits for the one before it); "
            "remove one of these jobs from the after of another"
        ) from exc
    return _with_parents_first(len(jobs), within)


def _id_and_type(job: NewJob) -> str:
    return f"{job.job_id} ({job.type})" if job.type else str(job.job_id)


def _with_parents_first(count: int, within: Mapping[int, Sequence[int]]) -> list[int]:
    placed: dict[int, None] = {}
    for place in range(count):
        stack = [place]
        while stack:
            missing = [parent for parent in within.get(stack[-1], ()) if parent not in placed]
            if missing:
                stack += missing[::-1]
            else:
                placed.setdefault(stack.pop())
    return [*placed]


def no_parent(parent: JobId) -> NotFound:
    return NotFound(f"after: there is no job {parent!r} to wait for; name a job that exists or is in the same push")


def has_unfinished(pool_id: PoolId) -> Refused:
    """Return the error for deleting a pool that has unfinished jobs, if the caller did not ask to delete them too."""
    return Refused(f"pool {pool_id!r} has unfinished jobs; cancel them, or delete them too (--unfinished)")


def needed_elsewhere(pool_id: PoolId, child: JobId, child_pool: PoolId) -> Refused:
    """Return the error for deleting a pool while ``child``, an unfinished job of another pool, depends on one of its jobs."""
    return Refused(
        f"pool {pool_id!r} cannot be deleted yet: job {child!r} of pool {child_pool!r} has not ended and needs a job of this "
        f"pool; let it end, or cancel it: drumbeat pool cancel {child_pool} {child}"
    )
