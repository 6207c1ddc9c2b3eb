"""The graph of a workflow: boxes of jobs, by level, and which box waits for which, for the commands and the pages."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from itertools import groupby

from drumbeat.core.job import Job, JobId, JobStatus
from drumbeat.core.pool import PoolId
from drumbeat.pool.flows import WorkflowProgress, find_workflow, jobs_of_workflow
from drumbeat.store.interface import Store

MOST_SINGLE = 40  #: in a workflow of at most this many jobs, each job has a box of its own
MOST_EXACT = 300  #: for at most this many jobs with parents, all links are read; else those of some jobs
MOST_NAMED = 5  #: ids of jobs that a box names
_MOST_KNOWN = 100_000

Links = Mapping[JobId, Sequence[JobId]]  #: the parents of jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphBox:
    """Jobs of a workflow that are shown as one box: they have the same level, pool and type."""

    level: int  #: 0: waits for no job of the workflow; else one more than the highest level of its parents
    pool_id: PoolId
    type: str
    counts: Mapping[JobStatus, int]
    job_ids: tuple[JobId, ...]  #: the first of its jobs; one that needs attention comes first

    @property
    def total(self) -> int:
        return sum(self.counts.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowGraph:
    """A workflow as boxes of jobs, in the order of their levels, and the links between the boxes."""

    progress: WorkflowProgress
    boxes: tuple[GraphBox, ...]
    links: tuple[tuple[int, int], ...]  #: from a box to a box that waits for it, by their places in ``boxes``
    is_sampled: bool = False  #: the links of some jobs only were read, because there are many


class GraphReader:
    """Reads graphs of workflows, and caches them: the parents of a job never change, so they are read only once; the jobs of a
    large workflow are read again only when its counts of jobs by state have changed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._links: dict[JobId, Sequence[JobId]] = {}
        self._last: WorkflowGraph | None = None

    async def read(self, workflow_id: str) -> WorkflowGraph:
        """Return the graph of a workflow. Raises NotFound if no job belongs to it."""
        progress = await find_workflow(self._store, workflow_id)
        if self._last is not None and progress.total > MOST_SINGLE and self._last.progress == progress:
            return self._last
        jobs = await jobs_of_workflow(self._store, workflow_id)
        self._last = build_graph(workflow_id, jobs, await self._links_of(sampled(jobs)))
        return self._last

    async def _links_of(self, jobs: Sequence[Job]) -> Links:
        if len(self._links) > _MOST_KNOWN:
            self._links.clear()
        for job in jobs:
            if job.job_id not in self._links:
                self._links[job.job_id] = [parent.job_id for parent in await self._store.jobs.parents(job.job_id)]
        return {job.job_id: self._links[job.job_id] for job in jobs}


def sampled(jobs: Sequence[Job]) -> list[Job]:
    """Return the jobs whose parents are to be read: all jobs with parents or, if they are more than ``MOST_EXACT``, a sample.
    The sample is taken from the first and last job of each series of jobs with the same pool and type that were pushed in a
    row, spread evenly over each pool and type."""
    linked = [job for job in jobs if job.if_failed is not None]
    if len(linked) <= MOST_EXACT:
        return linked
    rows = [[*row] for _, row in groupby(linked, key=_kind)]
    ends = {job.job_id: job for row in rows for job in (row[0], row[-1])}
    by_kind: dict[tuple[str, str], list[Job]] = {}
    for job in ends.values():
        by_kind.setdefault(_kind(job), []).append(job)
    most = max(MOST_EXACT // len(by_kind), 2)
    return [job for found in by_kind.values() for job in _spread(found, most)]


def build_graph(workflow_id: str, jobs: Sequence[Job], links: Links) -> WorkflowGraph:
    """Build the graph of a workflow from its jobs, in the order of pushing, and the parents of all or of a sample of them."""
    levels = _levels(jobs, links)
    members: dict[tuple[object, ...], list[Job]] = {}
    for job in jobs:
        alone = (job.job_id,) if len(jobs) <= MOST_SINGLE else ()
        members.setdefault((levels[job.job_id], *_kind(job), *alone), []).append(job)
    groups = sorted(members.values(), key=lambda group: levels[group[0].job_id])
    places = {job.job_id: place for place, group in enumerate(groups) for job in group}
    found = {
        (places[parent], places[job_id])
        for job_id, parents in links.items()
        for parent in parents
        if parent in places and places[parent] != places[job_id]
    }
    return WorkflowGraph(
        progress=WorkflowProgress(workflow_id=workflow_id, counts=dict(Counter(job.status for job in jobs))),
        boxes=tuple(_box(group, levels[group[0].job_id]) for group in groups),
        links=tuple(sorted(found)),
        is_sampled=sum(job.if_failed is not None for job in jobs) > len(links),
    )


def _box(jobs: Sequence[Job], level: int) -> GraphBox:
    urgent = sorted(jobs, key=lambda job: job.status is not JobStatus.POISONED)
    return GraphBox(
        level=level,
        pool_id=jobs[0].pool_id,
        type=jobs[0].type,
        counts=dict(Counter(job.status for job in jobs)),
        job_ids=tuple(job.job_id for job in urgent[:MOST_NAMED]),
    )


def _levels(jobs: Sequence[Job], links: Links) -> Mapping[JobId, int]:
    """Return the level of each job. A job whose parents were not read gets the level of the job of the same pool and type that
    was pushed before it."""
    levels: dict[JobId, int] = {}
    own = {job.job_id: job for job in jobs}
    before: dict[tuple[str, str], int] = {}
    for job_id in _ordered(own, links):
        job = own[job_id]
        if job_id in links or job.if_failed is None:
            levels[job_id] = max((levels.get(parent, 0) + 1 for parent in links.get(job_id, ()) if parent in own), default=0)
        else:
            levels[job_id] = before.get(_kind(job), 0)
        before[_kind(job)] = levels[job_id]
    return levels


def _ordered(jobs: Mapping[JobId, Job], links: Links) -> Iterator[JobId]:
    """Yield each job after its parents. If the parents of some jobs were not read, yield all in the order of pushing, in which
    parents usually come first."""
    if any(job.if_failed is not None and job_id not in links for job_id, job in jobs.items()):
        yield from jobs
        return
    within = {job_id: [parent for parent in links.get(job_id, ()) if parent in jobs] for job_id in jobs}
    yield from TopologicalSorter(within).static_order()


def _kind(job: Job) -> tuple[str, str]:
    return job.pool_id, job.type


def _spread(jobs: Sequence[Job], most: int) -> Sequence[Job]:
    """Return at most ``most`` of the jobs, spread evenly, with the first and the last."""
    if len(jobs) <= most:
        return jobs
    return [jobs[round(n * (len(jobs) - 1) / (most - 1))] for n in range(most)]
