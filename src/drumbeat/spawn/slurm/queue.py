"""Lists a cluster's jobs with few calls of squeue for many callers, and combines jobs and run folders into instances."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from itertools import groupby
from typing import Final

from drumbeat.core.clock import Clock
from drumbeat.core.errors import Unanswered
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.interface import Instance, InstanceState
from drumbeat.spawn.slurm.commands import SlurmCommands
from drumbeat.spawn.slurm.errors import ALL_NODES_DOWN, explain_reason
from drumbeat.spawn.slurm.folder import SlurmRun
from drumbeat.spawn.slurm.jobs import SlurmJob

_SINFO_EVERY: Final = timedelta(seconds=5)


class JobQueue:
    """Lists all jobs with squeue. Concurrent callers share one run of squeue, which starts after their calls."""

    def __init__(self, commands: SlurmCommands, clock: Clock) -> None:
        self._commands = commands
        self._clock = clock
        self._down: Set[str] = frozenset()
        self._sinfo_at: timedelta | None = None
        self._lock = asyncio.Lock()
        self._calls = 0
        self._answered = 0  #: how many calls had come when squeue was last started
        self._jobs: Sequence[SlurmJob] = ()

    async def jobs(self) -> Sequence[SlurmJob]:
        """Return this user's jobs that Drumbeat submitted, listed by a squeue started after this call. Raises Unanswered."""
        self._calls += 1
        call = self._calls
        async with self._lock:
            if self._answered < call:
                calls = self._calls
                self._jobs = await self._explained(await self._commands.jobs())
                self._answered = calls
            return self._jobs

    async def _explained(self, jobs: Sequence[SlurmJob]) -> Sequence[SlurmJob]:
        """Set the reason of pending jobs if all nodes of their partition are down, since Slurm may only report "Resources"."""
        if not any(job.state is InstanceState.PENDING and job.reason for job in jobs):
            return jobs
        if self._sinfo_at is None or self._clock.elapsed() - self._sinfo_at > _SINFO_EVERY:
            self._sinfo_at = self._clock.elapsed()
            with suppress(Unanswered):
                self._down = await self._commands.down_partitions()
        return [replace(job, reason=ALL_NODES_DOWN) if _is_stuck(job, self._down) else job for job in jobs]


def _is_stuck(job: SlurmJob, down: Set[str]) -> bool:
    return job.state is InstanceState.PENDING and job.partition in down


def instances(runs: Iterable[SlurmRun], jobs: Iterable[SlurmJob]) -> Sequence[Instance]:
    """Combine runs and jobs of one store into instances. Ended jobs without a run folder are left out.

    Read the runs before the jobs. In the other order, a run could be newer than the list of jobs: its job would be missing, and
    its worker would count as ended.
    """
    by_run = {run: sorted(group, key=lambda job: job.job_id) for run, group in groupby(sorted(jobs, key=_run_of), key=_run_of)}
    found = [one for run in runs if (one := _of_run(run, by_run.pop(run.run, ()))) is not None]
    strays = [job for group in by_run.values() for job in group if job.is_live]
    return sorted([*found, *map(instance_of, strays)], key=lambda one: (one.pool_id, one.worker_id, one.ref))


def instance_of(job: SlurmJob) -> Instance:
    """Return a job as an instance."""
    return Instance(
        pool_id=job.label.pool_id,
        worker_id=job.label.worker_id,
        ref=str(job.job_id),
        state=job.state,
        started_at=job.started_at,
        exit_code=job.exit_code,
        meta=_meta(job),
    )


def _meta(job: SlurmJob) -> Mapping[str, str]:
    reason = job.meta.get("reason")
    return {**job.meta, "reason": explain_reason(reason)} if reason and job.state is InstanceState.PENDING else job.meta


def _run_of(job: SlurmJob) -> str:
    return job.label.run


def _of_run(run: SlurmRun, jobs: Sequence[SlurmJob]) -> Instance | None:
    """Return the instance of a run, given the jobs of the run; None if no job was submitted yet."""
    chosen = _chosen(run, jobs)
    code = run.exit_code
    if chosen is not None and chosen.is_live and code is None:
        return instance_of(chosen)
    ref = run.job_id or (chosen and chosen.job_id)
    if not ref:
        return None
    return Instance(
        pool_id=PoolId(run.pool_id),
        worker_id=WorkerId(run.worker_id),
        ref=str(ref),
        state=InstanceState.EXITED,
        started_at=(chosen and chosen.started_at) or run.created_at,
        exit_code=chosen.exit_code if code is None and chosen else code,
        meta=chosen.meta if chosen else {},
    )


def _chosen(run: SlurmRun, jobs: Sequence[SlurmJob]) -> SlurmJob | None:
    """Return the job that the run folder names; if none, the run's first live job; if none, its last job. None without jobs."""
    known = next((job for job in jobs if job.job_id == run.job_id), None)
    live = next((job for job in jobs if job.is_live), None)
    return known or live or (jobs[-1] if jobs else None)
