"""Starts, lists and ends workers as jobs of a Ray cluster, by its Jobs API. Workers keep running when the controller ends."""

import asyncio
import logging
import os
import re
from collections.abc import Mapping, Sequence, Set
from datetime import timedelta
from itertools import groupby
from types import TracebackType
from typing import Any, Final, Self
from weakref import WeakValueDictionary

from drumbeat.core.clock import Clock, SystemClock
from drumbeat.core.errors import InvalidInput, NotFound, SpawnAmbiguous, SpawnCause, SpawnError, SpawnFailed, Unanswered
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.interface import Instance, InstanceState, Order, SpawnerTraits
from drumbeat.spawn.names import POOL as POOL_VARIABLE, WORKER as WORKER_VARIABLE, Name, scope_name
from drumbeat.spawn.ray.client import RayClient, Submitted, Transport
from drumbeat.spawn.ray.jobs import (
    DRAINS,
    POOL,
    RUN,
    SCOPE,
    WORKER,
    RayJob,
    job_name,
    last_lines,
    latest,
    own_output,
    rays_output,
)
from drumbeat.spawn.ray.package import MODULE, RayPackage, make_package
from drumbeat.spawn.ray.settings import RaySettings
from drumbeat.spawn.ray.supervisor import KEY
from drumbeat.spawn.traits import remote_traits

log = logging.getLogger(__name__)

_TRIES: Final = 4  #: how many submission ids a start tries, if other controllers start and end the same worker meanwhile
_FIRST_PAUSE, _LONGEST_PAUSE = timedelta(milliseconds=100), timedelta(seconds=1)
_ENDS_WITHIN: Final = timedelta(minutes=1)
_RAY_WRITES_WITHIN: Final = timedelta(seconds=10)  #: Ray still writes the record of a job shortly after its end
_DELETED_AT_ONCE: Final = 16
_NODE_LABEL: Final = "ray.io/node-id"
_LABELS_SINCE: Final = (2, 60)  #: in this version jobs that ask for a node by its label were tested


class RaySpawner:
    """Starts each worker as a job whose submission id is derived from store, pool and worker. Ray accepts each id only once.

    The job runs a small supervisor (see ``supervisor``), which starts the worker and exits with the worker's exit code. To
    terminate a worker, its job is stopped. To drain it, a second job on the same node sends it SIGTERM, because Ray kills a
    stopped job after a few seconds. An exit code of -n means that signal n ended the worker.
    """

    def __init__(
        self,
        settings: RaySettings,
        environment: Mapping[str, str],
        scope: str,
        clock: Clock | None = None,
        *,
        name: str = "ray",
        variables: Mapping[str, str] | None = None,
        transport: Transport | None = None,
    ) -> None:
        """``environment`` is for the workers; ``scope`` identifies the store; ``variables`` replaces ``os.environ``."""
        self._name = name
        self._settings = settings
        self._scope = scope_name(scope)
        self._clock = clock or SystemClock()
        self._variables = os.environ if variables is None else variables
        passed = {each: self._variables[each] for each in settings.runtime_env.env_vars if each in self._variables}
        self._environment = {**passed, **environment}
        self._transport = transport
        self._client: RayClient | None = None
        self._locks: WeakValueDictionary[Name, asyncio.Lock] = WeakValueDictionary()
        self._starting: set[Name] = set()  #: workers whose jobs are being submitted
        self._terminated: set[str] = set()  #: the runs that were terminated; once ended, they are not listed

    @property
    def traits(self) -> SpawnerTraits:
        return remote_traits(self._name, self._settings, self._settings.price_per_hour)

    async def spawn(self, order: Order) -> Instance:
        name = (order.pool_id, order.worker_id)
        subject = _subject(name)
        async with self._locks.setdefault(name, asyncio.Lock()):
            try:
                jobs = await self._jobs()
            except Unanswered as exc:
                if order.is_first:
                    raise SpawnFailed(f"{subject} could not be started: {exc}", cause=exc.cause) from exc
                raise SpawnAmbiguous(f"{subject} was not started again, because it might already be running: {exc}") from exc
            found = latest([job for job in jobs if job.name == name and job.drains is None])
            if found is not None and found.is_live:
                return self._instance(found)
            return await self._start(order, name, jobs)

    async def list(self, pool_id: PoolId) -> Sequence[Instance]:
        jobs = [job for job in await self._jobs() if job.name[0] == pool_id and job.drains is None]
        workers = groupby(sorted(jobs, key=lambda job: job.name[1]), key=lambda job: job.name)
        found = [latest([*group]) for _, group in workers]
        return [self._instance(job) for job in found if job is not None and not self._is_terminated(job)]

    async def pools(self) -> Set[PoolId]:
        """Return the pools of this store that have pending or running workers. Raises Unanswered."""
        return {job.name[0] for job in await self._jobs() if job.is_live and job.drains is None}

    async def drain(self, pool_id: PoolId, worker_id: WorkerId) -> None:
        name = (pool_id, worker_id)
        jobs = await self._jobs()
        for job in jobs:
            if job.name != name or job.drains is not None or not job.is_live:
                continue
            if job.state is InstanceState.PENDING:
                await self._open.stop(job.id)  # its worker has not begun, so there is nothing to finish
            else:
                await self._submit_drain(job, [each for each in jobs if each.drains == job.id])

    async def terminate(self, pool_id: PoolId, worker_id: WorkerId) -> None:
        name = (pool_id, worker_id)
        jobs = [job for job in await self._jobs() if job.name == name and job.drains is None]
        self._terminated.update(job.run for job in jobs)
        for job in jobs:
            if job.is_live:
                await self._end(job)

    async def logs(self, pool_id: PoolId, worker_id: WorkerId, *, lines: int = 200) -> str:
        """Return the last lines that the worker wrote. Raises SpawnError; NotFound, for example for a terminated worker."""
        name = (pool_id, worker_id)
        job = latest([job for job in await self._jobs() if job.name == name and job.drains is None])
        text = None if job is None or self._is_terminated(job) else await self._open.output(job.id)
        if job is None or text is None:
            raise NotFound(f"Ray has no output of worker {worker_id} of pool {pool_id}; it may have been terminated")
        found = own_output(text, job.run)
        if found is None and not job.is_live:
            found = rays_output(text, job.message or "")
        return last_lines(found or "", lines)

    async def __aenter__(self) -> Self:
        token = self._variables.get(self._settings.token_variable, "").strip() or None
        if token is not None and not (token.isascii() and token.isprintable() and " " not in token):
            raise InvalidInput(f"expected a token of ASCII characters without spaces in {self._settings.token_variable}")
        self._client = RayClient(self._settings, token, self._transport)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    # Starting

    async def _start(self, order: Order, name: Name, jobs: Sequence[RayJob]) -> Instance:
        """Start a worker that does not run. Raises SpawnFailed, SpawnAmbiguous."""
        self._check_room(name, jobs)
        command = order.command_line(self._settings.usual_command)
        environment = {**self._environment, **order.environment, POOL_VARIABLE: name[0], WORKER_VARIABLE: name[1]}
        _check_executable(name, [*command, *environment, *environment.values()])
        self._starting.add(name)
        try:
            package = make_package(command, environment)
            try:
                await self._open.upload(package)
            except Unanswered as exc:
                raise SpawnFailed(f"{_subject(name)} could not be started: {exc}", cause=exc.cause) from exc
            return await self._submit(name, package, jobs)
        finally:
            self._starting.discard(name)

    async def _submit(self, name: Name, package: RayPackage, jobs: Sequence[RayJob]) -> Instance:
        """Submit the worker's job. Lists the jobs afterwards, and stops this job if another controller submitted one first."""
        subject, number = _subject(name), 0
        for _ in range(_TRIES):
            number = self._next_number(name, jobs, number)
            answer = await self._open.submit(self._request(name, package, f"{job_name(self._scope, name)}-{number}"))
            if answer.result is Submitted.REFUSED:
                raise SpawnFailed(f"{subject} could not be started: {answer.why}", cause=answer.cause)
            try:
                jobs = await self._jobs()
            except Unanswered as exc:
                why = f"{answer.why}; {exc}" if answer.why else str(exc)
                raise SpawnAmbiguous(f"{subject} may have been started: {why}; list the workers before trying again") from exc
            mine = [job for job in jobs if job.name == name and job.drains is None]
            found = latest(mine)
            if found is not None and (found.is_live or found.run == package.run):
                await self._stop_twin(found, next((job for job in mine if job.run == package.run), found))
                return self._instance(found)
            if answer.result is Submitted.UNKNOWN:
                raise SpawnAmbiguous(f"{subject} may have been started: {answer.why}; list the workers before trying again")
        raise SpawnFailed(f"{subject} could not be started: other controllers start and end it at the same time; try again")

    async def _stop_twin(self, kept: RayJob, mine: RayJob) -> None:
        """Stop the job ``mine``, which this spawner has just submitted, if ``kept`` is another job for the same worker."""
        if mine.id != kept.id and mine.is_live:
            log.warning("%s was started twice; ending job %s", _subject(kept.name), mine.id)
            await self._open.stop(mine.id)

    def _request(self, name: Name, package: RayPackage, submission_id: str) -> Mapping[str, Any]:
        chosen = self._settings.runtime_env
        environment: dict[str, Any] = {"py_modules": [package.uri], "env_vars": {KEY: package.key}}
        if chosen.working_dir:
            environment["working_dir"] = chosen.working_dir
        if chosen.pip:
            environment["pip"] = [*chosen.pip]
        return {
            "entrypoint": f"exec {self._supervisor}",
            "submission_id": submission_id,
            "metadata": {SCOPE: self._scope, POOL: name[0], WORKER: name[1], RUN: package.run},
            "runtime_env": environment,
            **self._settings.entrypoint_resources,
        }

    @property
    def _supervisor(self) -> str:
        return f"{self._settings.python} -S -m {MODULE}"

    def _next_number(self, name: Name, jobs: Sequence[RayJob], taken: int) -> int:
        """Return the number for the worker's next submission id: one more than the largest of ``taken`` and those in ``jobs``.

        Controllers that see the same jobs choose the same number, so that Ray accepts only one of their jobs.
        """
        base = re.escape(job_name(self._scope, name))
        found = [int(match[1]) for job in jobs if (match := re.fullmatch(rf"{base}-(\d+)", job.id))]
        return max([taken, *found]) + 1

    def _check_room(self, name: Name, jobs: Sequence[RayJob]) -> None:
        slots = self._settings.slots
        live = [job.name for job in jobs if job.is_live and job.drains is None]
        taken = len(live) + len(self._starting - {*live})
        if slots is not None and taken >= slots:
            raise SpawnFailed(
                f"{_subject(name)} could not be started: all {slots} slots are taken; raise slots of engine {self._name}",
                cause=SpawnCause.NO_CAPACITY,
            )

    # Ending

    async def _submit_drain(self, job: RayJob, earlier: Sequence[RayJob]) -> None:
        """Submit a job that runs on the node of a worker's job and drains the worker, unless one was submitted before."""
        if any(each.status != "FAILED" for each in earlier):
            return
        package = ((job.runtime_env or {}).get("py_modules") or [None])[0]
        if package is None or job.driver_node_id is None or job.host is None:
            raise SpawnError(f"{_subject(job.name)} cannot be drained: Ray does not say where job {job.id} runs; terminate it")
        by_label = {"entrypoint_label_selector": {_NODE_LABEL: job.driver_node_id}}
        by_address = {"entrypoint_resources": {f"node:{job.host}": 0.001}}  # Ray gives each node 1 of this resource
        answer = await self._open.submit(
            {
                "entrypoint": f"exec {self._supervisor} drain",
                "submission_id": f"{job.id}-drain-{len(earlier) + 1}",
                "metadata": {SCOPE: self._scope, POOL: job.name[0], WORKER: job.name[1], DRAINS: job.id},
                "runtime_env": {"py_modules": [package]},
                **(by_label if (self._open.version or _LABELS_SINCE) >= _LABELS_SINCE else by_address),
            }
        )
        if answer.result not in {Submitted.ACCEPTED, Submitted.EXISTS}:
            raise Unanswered(f"{_subject(job.name)} might not have been drained: {answer.why}", cause=answer.cause)

    async def _end(self, job: RayJob) -> None:
        """Stop a job and wait until it has ended; a pending job ends only after Ray has started the job. Raises Unanswered."""
        began, pause = self._clock.elapsed(), _FIRST_PAUSE
        is_told = await self._open.stop(job.id)
        while (now := await self._open.find_job(job.id)) is not None and now.is_live:
            limit = self._settings.usual_start * 3 if now.state is InstanceState.PENDING else _ENDS_WITHIN
            if self._clock.elapsed() - began > limit:
                raise Unanswered(
                    f"{_subject(job.name)} has not ended: job {job.id} is still {now.status} {limit.total_seconds():g} s after "
                    "it was stopped; Ray ends a pending job only after starting the job; try again later"
                )
            await self._clock.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_PAUSE)
            is_told = is_told or await self._open.stop(job.id)

    # Looking

    async def _jobs(self) -> Sequence[RayJob]:
        """Return the jobs of this store, and delete the records of ended jobs that are no longer needed. Raises Unanswered."""
        client = self._open
        await client.check_version()
        jobs = [job for job in await client.jobs() if job.is_of(self._scope)]
        self._terminated &= {job.run for job in jobs}
        ended = [job for job in jobs if not job.is_live and self._is_done_with(job)]
        deleted = await asyncio.gather(*(self._delete(job) for job in ended[:_DELETED_AT_ONCE]))
        return [job for job in jobs if job.id not in deleted]

    def _is_done_with(self, job: RayJob) -> bool:
        """Whether the record of an ended job can be deleted: it is no longer needed, and Ray no longer writes to it."""
        now = self._clock.now().timestamp()
        age = timedelta(seconds=now - (job.end_time / 1000 if job.end_time is not None else now))
        is_needed = not self._is_terminated(job) and job.drains is None and age < self._settings.keep_ended
        return age > _RAY_WRITES_WITHIN and not is_needed

    async def _delete(self, job: RayJob) -> str | None:
        """Delete the record of an ended job. Returns its submission id; None if this failed (the next list tries again)."""
        if job.drains is not None and job.status == "FAILED":
            log.warning("job %s failed to drain %s: %s", job.id, _subject(job.name), job.message)
        try:
            await self._open.delete(job.id)
        except Unanswered as exc:
            log.info("could not delete the record of job %s: %s; trying again later", job.id, exc)
            return None
        return job.id

    def _is_terminated(self, job: RayJob) -> bool:
        """Whether a job has ended because it was terminated by this spawner, or stopped by any client of Ray."""
        return not job.is_live and (job.status == "STOPPED" or job.run in self._terminated)

    def _instance(self, job: RayJob) -> Instance:
        return job.instance(self._settings.price_per_hour, self._settings.wanted)

    @property
    def _open(self) -> RayClient:
        if self._client is None:
            raise InvalidInput("expected an open spawner; use it as: async with RaySpawner(...) as spawner")
        return self._client


def _subject(name: Name) -> str:
    return f"worker {name[1]} of {name[0]}"


def _check_executable(name: Name, words: Sequence[str]) -> None:
    """Raise SpawnFailed if a word of the command or environment contains a NUL character, which no system can execute."""
    for word in words:
        if "\0" in word:
            raise SpawnFailed(
                f"{_subject(name)} could not be started: expected a command and variables without NUL characters, got {word!r}",
                cause=SpawnCause.BAD_REQUEST,
            )
