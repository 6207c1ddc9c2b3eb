"""Starts, lists and ends workers as jobs of a Slurm cluster, one job for each worker. Jobs outlive this process."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence, Set
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from types import TracebackType
from typing import Final, Self
from uuid import uuid4
from weakref import WeakValueDictionary

from drumbeat.core.clock import Clock, SystemClock
from drumbeat.core.errors import (
    InvalidInput,
    NotFound,
    SpawnAmbiguous,
    SpawnCause,
    SpawnError,
    SpawnFailed,
    Unanswered,
)
from drumbeat.core.plain import time_span
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.interface import Instance, InstanceState, Order, SpawnerTraits
from drumbeat.spawn.names import POOL, WORKER, Name, instance_name, scope_name
from drumbeat.spawn.private import last_lines
from drumbeat.spawn.slurm.commands import Answered, SlurmCommands, SlurmTimeout
from drumbeat.spawn.slurm.errors import explain, is_unsure
from drumbeat.spawn.slurm.folder import SharedFolder, SlurmRun, in_thread
from drumbeat.spawn.slurm.jobs import JobLabel, SlurmJob
from drumbeat.spawn.slurm.queue import JobQueue, instances
from drumbeat.spawn.slurm.script import DRAIN_SIGNAL, TAG, environment_file, submitted_script, worker_script
from drumbeat.spawn.slurm.settings import SlurmSettings
from drumbeat.spawn.traits import remote_traits

log = logging.getLogger(__name__)

_FIRST_POLL: Final = timedelta(milliseconds=20)
_LONGEST_POLL: Final = timedelta(milliseconds=250)
_SLURM_LINES: Final = 20


class SlurmSpawner:
    """Starts workers as batch jobs. Spawners with the same ``scope`` and folder see the same workers.

    Slurm allows several jobs of one name. So a worker is started under a lock in the shared folder, which sbatch itself holds
    too; if sbatch does not answer, the job is looked for by its comment; and of several jobs of one start, only one runs the
    worker. Exit code 128 + n: signal n ended the worker; exit code -n: signal n ended the job's script.
    """

    def __init__(
        self,
        settings: SlurmSettings,
        environment: Mapping[str, str],
        scope: str,
        clock: Clock | None = None,
        name: str = "slurm",
        commands: SlurmCommands | None = None,
    ) -> None:
        """``environment`` is set for all workers; ``scope`` identifies the store; ``name`` names the engine."""
        self._name = name
        self._settings = settings
        self._environment = dict(environment)
        self._scope = scope_name(scope)
        self._clock = clock or SystemClock()
        self._commands = commands or SlurmCommands(settings.timeout, settings.programs)
        self._folder = SharedFolder(settings.folder, self._scope, self._clock)
        self._locks: WeakValueDictionary[Name, asyncio.Lock] = WeakValueDictionary()
        self._slots_lock = asyncio.Lock()
        self._queue: JobQueue | None = None
        self._is_prepared = False

    @property
    def traits(self) -> SpawnerTraits:
        return remote_traits(self._name, self._settings, self._settings.price_per_hour, self._settings.notice or None)

    async def spawn(self, order: Order) -> Instance:
        name = (order.pool_id, order.worker_id)
        subject = f"worker {order.worker_id} of {order.pool_id}"
        may_run = not order.is_first
        try:
            async with self._locked(name) as lock:
                if (found := await self._find(name, order)) is not None:
                    return found
                may_run = False
                return await self._start(name, order, subject, lock)
        except (SpawnFailed, SpawnAmbiguous):
            raise
        except SpawnError as exc:
            if may_run:
                raise SpawnAmbiguous(
                    f"{subject} was not started again, because it might already be running: {exc}; try again"
                ) from exc
            raise SpawnFailed(f"{subject} could not be started: {exc}", cause=exc.cause) from exc

    async def list(self, pool_id: PoolId) -> Sequence[Instance]:
        return [one for one in await self._all() if one.pool_id == pool_id]

    async def pools(self) -> Set[PoolId]:
        """Return the pools of this store that have pending or running jobs. Raises Unanswered."""
        return {one.pool_id for one in await self._all() if one.state is not InstanceState.EXITED}

    async def drain(self, pool_id: PoolId, worker_id: WorkerId) -> None:
        await self._open()
        name = (pool_id, worker_id)
        run = await in_thread(self._folder.find, self._key(name))
        if run is not None:
            await in_thread(run.mark, "drain")
        live = await self._live_jobs(name)
        if waiting := [job.job_id for job in live if job.state is InstanceState.PENDING]:
            await self._commands.cancel("--state=PENDING", jobs=waiting)
        if live:
            await self._commands.cancel("--batch", f"--signal={DRAIN_SIGNAL}", jobs=[job.job_id for job in live])

    async def terminate(self, pool_id: PoolId, worker_id: WorkerId) -> None:
        name = (pool_id, worker_id)
        async with self._locked(name):
            await self._end(name)

    async def logs(self, pool_id: PoolId, worker_id: WorkerId, *, lines: int = 200) -> str:
        """Return the last lines of the worker's log. Raises SpawnError; NotFound, for example for a terminated worker."""
        await self._open()
        run = await in_thread(self._folder.find, self._key((pool_id, worker_id)))
        if run is None:
            raise NotFound(f"there is no log of worker {worker_id} of pool {pool_id}; it may have been terminated")
        try:
            return await in_thread(last_lines, run.log, lines)
        except FileNotFoundError:
            return await self._why_no_log(run)
        except OSError as exc:
            raise self._folder.failure(exc) from exc

    async def __aenter__(self) -> Self:
        self._queue = JobQueue(self._commands, self._clock)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._queue = None

    # Reading

    async def _all(self) -> Sequence[Instance]:
        """Return all instances of this store. Reads the run folders before squeue runs, so that squeue lists all their jobs."""
        queue = await self._open()
        try:
            runs = await in_thread(self._folder.runs)
            jobs = [job for job in await queue.jobs() if job.label.scope == self._scope]
            await self._sweep_damaged(runs, jobs)
            return await in_thread(instances, runs, jobs)
        except OSError as exc:
            raise self._folder.failure(exc) from exc

    async def _sweep_damaged(self, runs: Sequence[SlurmRun], jobs: Sequence[SlurmJob]) -> None:
        """Delete the damaged run folders, which are not among ``runs``, of workers without a live job."""
        live = {self._key(job.label.name) for job in jobs if job.is_live}
        settled = self._settings.timeout + self._settings.settle
        for key in await in_thread(self._folder.damaged, {run.path.name for run in runs}):
            if key not in live and await in_thread(self._folder.is_older, key, settled):
                with suppress(Unanswered):  # the worker is being started or ended
                    async with self._folder.lock(key, timedelta()):
                        if await in_thread(self._folder.find, key) is None:
                            await in_thread(self._folder.remove, key)

    async def _live_jobs(self, name: Name) -> Sequence[SlurmJob]:
        jobs = await (await self._open()).jobs()
        return [job for job in jobs if job.is_live and _is_of(job.label, self._scope, name)]

    async def _why_no_log(self, run: SlurmRun) -> str:
        """Return why a worker has no log: Slurm's own output, or how its job ended; empty if its job has not ended."""
        with suppress(FileNotFoundError):
            return await in_thread(last_lines, run.slurm_log, _SLURM_LINES)
        jobs = [job for job in await (await self._open()).jobs() if job.label.run == run.run]
        if not jobs or jobs[-1].is_live:
            return ""
        job = jobs[-1]
        return (
            f"drumbeat: job {job.job_id} ended as {job.meta['state']} on {job.nodes or 'no node'} before its script ran; "
            f"check that the folder {self._settings.folder} is on a file system that the nodes share\n"
        )

    # Starting

    async def _find(self, name: Name, order: Order) -> Instance | None:
        """Return the worker's pending or running instance; None if there is none."""
        run = await in_thread(self._folder.find, self._key(name))
        if run is None and order.is_first:
            return None
        found = [one for one in await self._all() if (one.pool_id, one.worker_id) == name]
        return next((one for one in found if one.state is not InstanceState.EXITED), None)

    async def _start(self, name: Name, order: Order, subject: str, lock: int) -> Instance:
        """Submit a job for a worker that has none. Raises SpawnFailed, SpawnAmbiguous."""
        key = self._key(name)
        run = await in_thread(self._folder.find, key)
        is_known = run is not None and (run.job_id is not None or run.exit_code is not None)
        if run is None or is_known:
            if is_known or await in_thread(self._folder.run_path(key).exists):
                await self._end(name)
            run = await self._reserve(name, order, subject)
            return await self._submit(run, subject, lock)
        log.info("submitting %s again, because sbatch gave no answer last time", subject)
        instance = await self._submit(run, subject, lock)
        try:
            return await self._cancel_duplicates(run, instance)
        except SpawnError as exc:
            raise SpawnAmbiguous(f"{subject} may have been submitted twice: {exc}; try again") from exc

    async def _reserve(self, name: Name, order: Order, subject: str) -> SlurmRun:
        """Create the worker's run folder, if a slot is free. Raises SpawnFailed."""
        if self._settings.slots is None:
            return await self._create(name, order)
        async with self._slots_lock, self._folder.slots_lock(self._settings.timeout):
            taken = await self._taken()
            if taken >= self._settings.slots:
                raise SpawnFailed(
                    f"{subject} could not be started: all {self._settings.slots} slots are taken; raise slots",
                    cause=SpawnCause.NO_CAPACITY,
                )
            return await self._create(name, order)

    async def _taken(self) -> int:
        """Count the live jobs of all stores that use the folder, including jobs that are being submitted."""
        runs = await in_thread(self._folder.all_runs)
        live = {job.label.run for job in await (await self._open()).jobs() if job.is_live}
        recent = self._clock.now() - self._settings.timeout - self._settings.settle
        return sum(run.run in live or (run.job_id is None and run.created_at > recent) for run in runs)

    async def _create(self, name: Name, order: Order) -> SlurmRun:
        key, run = self._key(name), uuid4().hex[:16]
        path, tag = self._folder.run_path(key), f"{self._scope}/{key}/{run}"
        environment = {**self._environment, **order.environment, POOL: name[0], WORKER: name[1], TAG: tag}
        command = order.command_line(self._settings.worker_command)
        script = worker_script(path, tag, command, self._settings.workdir, self._settings.setup)
        files = {
            f"script-{run}": script.encode("utf-8", "surrogateescape"),
            f"submitted-{run}": submitted_script(path / f"script-{run}").encode("utf-8", "surrogateescape"),
            "env": environment_file(environment),
        }
        try:
            return await in_thread(self._folder.create, key, *name, files, run)
        except OSError as exc:
            raise self._folder.failure(exc) from exc

    async def _submit(self, run: SlurmRun, subject: str, lock: int) -> Instance:
        """Run sbatch. If it submitted no job, delete the run folder. Raises SpawnFailed, SpawnAmbiguous, Unanswered."""
        label = JobLabel(scope=self._scope, run=run.run, pool_id=PoolId(run.pool_id), worker_id=WorkerId(run.worker_id))
        options = [
            f"--job-name={run.path.name}",
            f"--comment={label.comment}",
            f"--output={str(run.slurm_log).replace('%', '%%')}",
            *("--open-mode=append", "--no-requeue", "--export=ALL", "--chdir=/", "--nodes=1", "--ntasks=1"),
            *self._settings.sbatch_options,
        ]
        try:
            answer = await self._commands.submit(options, run.submitted, lock)
        except SlurmTimeout as exc:
            return await self._look_for(run, subject, str(exc))
        except Unanswered:
            await in_thread(self._folder.remove, run.path.name)
            raise
        if (job_id := _job_id(answer)) is not None:
            return await self._submitted(run, job_id)
        said, cause = explain(answer.errors)
        if answer.code <= 0 or is_unsure(answer.errors):
            return await self._look_for(run, subject, f"sbatch: {said}")
        await in_thread(self._folder.remove, run.path.name)
        raise SpawnFailed(f"{subject} could not be started: sbatch: {said}", cause=cause)

    async def _submitted(self, run: SlurmRun, job_id: int) -> Instance:
        await in_thread(run.note_job, job_id)
        return Instance(
            pool_id=PoolId(run.pool_id),
            worker_id=WorkerId(run.worker_id),
            ref=str(job_id),
            state=InstanceState.PENDING,
            started_at=run.created_at,
        )

    async def _look_for(self, run: SlurmRun, subject: str, said: str) -> Instance:
        """Look for a run's job after sbatch gave no clear answer. Raises SpawnAmbiguous if squeue does not show it."""
        try:
            found = [job.job_id for job in await (await self._open()).jobs() if job.label.run == run.run]
        except Unanswered:
            found = []
        if found:
            return await self._submitted(run, min(found))
        raise SpawnAmbiguous(f"{subject} may have been submitted: {said}; list the workers before trying again")

    async def _cancel_duplicates(self, run: SlurmRun, instance: Instance) -> Instance:
        """If a run was submitted twice, cancel all jobs but one: keeps the job that runs the worker, or else the first."""
        jobs = await (await self._open()).jobs()
        twins = sorted(job.job_id for job in jobs if job.label.run == run.run and job.is_live)
        if len(twins) < 2:
            return instance
        now = await in_thread(self._folder.find, run.path.name)
        kept = now.job_id if now is not None and now.is_claimed and now.job_id in twins else twins[0]
        log.warning(
            "worker %s of pool %s was submitted twice; keeping Slurm job %s, cancelling the others",
            run.worker_id,
            run.pool_id,
            kept,
        )
        await self._commands.cancel(jobs=[each for each in twins if each != kept])
        return await self._submitted(run, kept or twins[0])

    # Ending

    async def _end(self, name: Name) -> None:
        """Cancel all jobs of a worker, wait until they have ended, and delete its run folder. Raises Unanswered."""
        run = await in_thread(self._folder.find, self._key(name))
        if run is not None:
            await in_thread(run.mark, "terminate")
        deadline, poll = self._clock.elapsed() + self._settings.end_timeout, _FIRST_POLL
        asked: set[int] = set()
        while live := await self._live_jobs(name):
            if left := [job.job_id for job in live if job.job_id not in asked]:
                await self._commands.cancel(jobs=left)
                asked.update(left)
            elif self._clock.elapsed() > deadline:
                job, within = live[0], time_span(self._settings.end_timeout)
                raise Unanswered(
                    f"job {job.job_id} is still {job.meta['state']} on {job.nodes or 'no node'} {within} after scancel; "
                    f"check that the node is up (sinfo), and that end_timeout is longer than KillWait"
                )
            await self._clock.sleep(poll)
            poll = min(poll * 1.5, _LONGEST_POLL)
        await in_thread(self._folder.remove, self._key(name))

    # Opening

    @asynccontextmanager
    async def _locked(self, name: Name) -> AsyncIterator[int]:
        """Hold the worker's lock, which excludes other tasks of this process and other processes. Raises Unanswered."""
        await self._open()
        within = self._settings.end_timeout + self._settings.timeout
        async with self._locks.setdefault(name, asyncio.Lock()), self._folder.lock(self._key(name), within) as file:
            yield file

    async def _open(self) -> JobQueue:
        if self._queue is None:
            raise InvalidInput("expected an open spawner; use it as: async with SlurmSpawner(...) as spawner")
        if not self._is_prepared:
            await in_thread(self._folder.prepare)
            self._is_prepared = True
        return self._queue

    def _key(self, name: Name) -> str:
        """Return the name of the worker's job and of its run folder."""
        return instance_name(self._scope, *name)


def _is_of(label: JobLabel, scope: str, name: Name) -> bool:
    return (label.scope, label.pool_id, label.worker_id) == (scope, *name)


def _job_id(answer: Answered) -> int | None:
    """Return the job id that ``sbatch --parsable`` printed, such as ``17`` or ``17;cluster``; None if it printed none."""
    first = answer.output.strip().partition(";")[0]
    return int(first) if answer.code == 0 and first.isdecimal() else None
