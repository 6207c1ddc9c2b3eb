"""The methods of a pool for workflows: jobs that wait for each other, in this pool and others of the store."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from drumbeat.core.job import Job, JobId, JobStatus
from drumbeat.core.pool import PoolId
from drumbeat.pool.payload import MOST_BYTES
from drumbeat.pool.plugins import PoolPlugins
from drumbeat.pool.result_ttl import without_expired_results
from drumbeat.store.interface import Store

if TYPE_CHECKING:
    from drumbeat.pool.flows import WorkflowProgress
    from drumbeat.pool.workflow_graph import GraphReader, WorkflowGraph


class PoolWorkflows:
    """Reads, cancels and requeues workflows and subtrees of jobs. ``Pool`` inherits these methods."""

    _store: Store
    _plugins: PoolPlugins
    _graphs: "GraphReader | None" = None

    async def workflow(self, workflow_id: str) -> "WorkflowProgress":
        """Count the jobs of a workflow by state, in all pools of the store. Raises NotFound."""
        from drumbeat.pool.flows import find_workflow

        return await find_workflow(self._store, workflow_id)

    async def workflow_graph(self, workflow_id: str) -> "WorkflowGraph":
        """Return the jobs of a workflow as boxes, by level, and which box waits for which. Raises NotFound.

        Jobs of the same level, pool and type are one box, unless the workflow is small.
        """
        from drumbeat.pool.workflow_graph import GraphReader

        self._graphs = self._graphs or GraphReader(self._store)
        return await self._graphs.read(workflow_id)

    async def workflow_jobs(
        self, workflow_id: str, *, statuses: Sequence[JobStatus] = (), after: str | None = None, limit: int = 1000
    ) -> Sequence[Job]:
        """Return jobs of a workflow, of all pools, in the order of pushing, starting after the job ``after``."""
        start = None if after is None else JobId(after)
        return await self._opened(await self._store.jobs.of_workflow(workflow_id, statuses=statuses, after=start, limit=limit))

    async def cancel_workflow(self, workflow_id: str) -> Sequence[Job]:
        """Cancel all unfinished jobs of a workflow, in all pools of the store, and return them. Jobs that run are asked to
        stop. Raises NotFound."""
        from drumbeat.pool.flows import cancel_workflow, find_workflow

        await find_workflow(self._store, workflow_id)
        return await cancel_workflow(self._store, workflow_id)

    async def cancel_subtree(self, job_id: str) -> Sequence[Job]:
        """Cancel a job of this pool and all jobs that wait for it, directly or through other jobs, also in other pools.
        Returns the jobs that were cancelled or, if they run, asked to stop. Raises NotFound."""
        from drumbeat.pool.flows import cancel_subtree

        return await cancel_subtree(self._store, (await self._stored_job(job_id)).job_id)

    async def requeue_subtree(self, job_id: str) -> Sequence[JobId]:
        """Requeue a job of this pool and all jobs below it that are poisoned or cancelled, also in other pools; each waits for
        its parents again. Returns the ids of the requeued jobs. Raises NotFound."""
        from drumbeat.pool.flows import requeue_subtree

        requeued = await requeue_subtree(self._store, (await self._stored_job(job_id)).job_id)
        pools = dict.fromkeys(PoolId(job.pool_id) for job in requeued)
        await self._work_added(requeued, [*pools])
        return [job.job_id for job in requeued]

    async def parents(self, job_id: str) -> Sequence[Job]:
        """Return the jobs that a job of this pool waits for or waited for, in the order of pushing. Raises NotFound."""
        return await self._opened(await self._store.jobs.parents((await self._stored_job(job_id)).job_id))

    async def children(self, job_id: str, limit: int = 1000) -> Sequence[Job]:
        """Return the jobs that wait for a job of this pool or waited for it, in the order of pushing. Raises NotFound."""
        return await self._opened(await self._store.jobs.children((await self._stored_job(job_id)).job_id, limit))

    async def _opened(self, jobs: Sequence[Job]) -> Sequence[Job]:
        """Return jobs as readers see them: with their payloads and results, without results that have expired."""
        readable = await without_expired_results(self._store, jobs)
        return [await self._plugins.opened(job, MOST_BYTES) for job in readable]

    async def _work_added(self, changed: object = True, pools: Sequence[PoolId] = ()) -> None:
        """Call ``on_push``, which can start workers for jobs that can now run; do nothing if nothing has ``changed``."""
        raise NotImplementedError

    async def _stored_job(self, job_id: str) -> Job:
        """Return a job of this pool. Raises NotFound."""
        raise NotImplementedError
