"""Starts, lists and ends workers as Jobs of a Kubernetes cluster.

Kubernetes can send a signal to a container only by ending its pod. To drain a worker, its pod gets a deadline in the past: the
node sends SIGTERM, waits for ``grace``, and keeps the pod with its exit code and log, until Kubernetes deletes the ended Job
(after ``keep_ended``). Deleting the pod, or suspending or deleting the Job, would also send SIGTERM, but lose the exit code and
log; and a Job can start another pod when its pod is deleted. If the worker's container has not started, the Job gets the
deadline instead of the pod.

To start a worker, a suspended Job is created, then its Secret, which the Job owns; then the Job is resumed. If the controller
dies in between, nothing runs: the next controller completes the start, or the worker counts as ended after ``settle``.

To terminate a worker, its Job is deleted, so that no other pod is started, and then its pod, with a grace period of one second:
with a grace period of 0, Kubernetes would forget the pod at once, although its processes might still run.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from contextlib import AsyncExitStack
from datetime import timedelta
from types import TracebackType
from typing import Self
from weakref import WeakValueDictionary

from drumbeat.core.clock import Clock, SystemClock
from drumbeat.core.errors import InvalidInput, NotFound, SpawnAmbiguous, SpawnError, SpawnFailed, Unanswered
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.interface import Instance, InstanceState, Order, SpawnerTraits
from drumbeat.spawn.kubernetes import manifests
from drumbeat.spawn.kubernetes.client import KubernetesClient, NeverSent
from drumbeat.spawn.kubernetes.objects import KubernetesJob, KubernetesPod
from drumbeat.spawn.kubernetes.problems import KubernetesRefused
from drumbeat.spawn.kubernetes.settings import KubernetesSettings
from drumbeat.spawn.kubernetes.states import newest, worker_instance
from drumbeat.spawn.names import Name
from drumbeat.spawn.traits import remote_traits

log = logging.getLogger(__name__)

_TRIES = 5  #: how often a start begins again because a Job of the same name ended or vanished meanwhile
_LOOKUPS = 16  #: how many Jobs that a list lacks are looked up by name at once
_TERMINATE_GRACE = 1  #: seconds between SIGTERM and SIGKILL
_GONE_WITHIN = timedelta(minutes=1)
_POLLS = (timedelta(milliseconds=20), timedelta(milliseconds=100), timedelta(milliseconds=500))
_POD_WITHIN = timedelta(seconds=5)  #: after this time without a pod, a Job's events are read


class KubernetesSpawner:
    """Starts each worker as a Job with one pod. The Job is named after store, pool and worker, so a worker has at most one Job.

    Spawners with the same ``scope`` and namespace see the same workers. Workers get their environment from a Secret.
    """

    def __init__(
        self,
        settings: KubernetesSettings,
        environment: Mapping[str, str],
        scope: str,
        clock: Clock | None = None,
        name: str = "kubernetes",
    ) -> None:
        """``environment`` is added to that of the image; ``scope`` identifies the store; ``name`` names the engine."""
        self._name = name
        self._settings = settings
        self._environment = dict(environment)
        self._scope = scope
        self._clock = clock or SystemClock()
        self._client = KubernetesClient(settings, self._clock)
        self._seen: dict[Name, str] = {}  #: workers that were alive at the last look, with the uid of their Job
        self._problems: dict[Name, str] = {}  #: the last problem of each worker that was logged
        self._locks: WeakValueDictionary[Name, asyncio.Lock] = WeakValueDictionary()
        self._stack: AsyncExitStack | None = None

    @property
    def traits(self) -> SpawnerTraits:
        return remote_traits(self._name, self._settings, self._settings.price_per_hour)

    async def spawn(self, order: Order) -> Instance:
        self._check_open()
        manifests.check_environment(order)
        name = (order.pool_id, order.worker_id)
        async with self._lock(name):
            for _ in range(_TRIES):
                job = await self._create(order, name)
                found = (job, []) if job is not None else await self._adopt(name)
                if found is None:
                    continue
                job, pods = found
                started = job if job.is_started else await self._start(order, name, job)
                if started is not None:
                    self._seen[name] = started.metadata.uid
                    return self._instance(name, started, pods)
        raise SpawnAmbiguous(
            f"{_subject(name)} may run: each Job created or found for it ended or vanished; list the workers, then try again"
        )

    async def list(self, pool_id: PoolId) -> Sequence[Instance]:
        self._check_open()
        found = await self._instances(manifests.pool_selector(self._scope, pool_id))
        found |= await self._unlisted([name for name in self._seen if name[0] == pool_id and name not in found])
        self._note(pool_id, found)
        return [found[name] for name in sorted(found)]

    async def pools(self) -> Set[PoolId]:
        """Return the pools of this store that have pending or running workers."""
        self._check_open()
        found = await self._instances(manifests.scope_selector(self._scope))
        return {one.pool_id for one in found.values() if one.state is not InstanceState.EXITED}

    async def drain(self, pool_id: PoolId, worker_id: WorkerId) -> None:
        """Let the worker's node send SIGTERM, and SIGKILL after ``grace``.

        If the worker can need longer to finish, drain it through the store, as the fleet does.
        """
        self._check_open()
        name = (pool_id, worker_id)
        job = await self._client.find_job(manifests.job_name(self._scope, name))
        if job is None or job.is_over:
            return
        pods = await self._pods_of(name)
        running = [pod for pod in pods if pod.is_running and pod.metadata.deletion_timestamp is None]
        for pod in running:
            await self._client.shorten_pod(pod.metadata.name)
        if not pods:
            await self._client.delete_job(job)
        elif not running and not any(pod.has_ended for pod in pods):
            await self._client.shorten_job(job.metadata.name)

    async def terminate(self, pool_id: PoolId, worker_id: WorkerId) -> None:
        self._check_open()
        name = (pool_id, worker_id)
        async with self._lock(name):
            await self._end(name, None)
            self._seen.pop(name, None)

    async def logs(self, pool_id: PoolId, worker_id: WorkerId, *, lines: int = 200) -> str:
        """Return the last lines of the worker's log. Raises SpawnError; NotFound if its Job was deleted or has not run yet."""
        self._check_open()
        name = (pool_id, worker_id)
        pod = newest(await self._pods_of(name))
        if pod is None:
            raise NotFound(f"no pod of {_subject(name)} was found; it may not have started, or its Job was deleted")
        text = await self._client.log(pod, lines)
        if text is None:
            problem = worker_instance(name, None, [pod], price=0).meta.get("problem", "its container has not started")
            raise NotFound(f"{_subject(name)} has no log: {problem}")
        return text

    async def __aenter__(self) -> Self:
        self._stack = AsyncExitStack()
        await self._stack.enter_async_context(self._client.opened())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        stack, self._stack = self._stack, None
        if stack is not None:
            await stack.aclose()

    # Starting

    async def _create(self, order: Order, name: Name) -> KubernetesJob | None:
        """Create the worker's Job; None if it exists already. Raises SpawnFailed, SpawnAmbiguous."""
        try:
            return await self._client.create_job(manifests.job_manifest(self._scope, order, self._settings))
        except (KubernetesRefused, NeverSent) as exc:
            if not order.is_first and await self._exists(name):
                return None
            raise SpawnFailed(f"{_subject(name)}: {exc}", cause=exc.cause, retry_after=exc.retry_after) from exc
        except Unanswered as exc:
            raise SpawnAmbiguous(f"{_subject(name)} may have been started: {exc}; list the workers before retrying") from exc

    async def _exists(self, name: Name) -> bool:
        """Whether the worker already has a Job from an earlier start. Raises SpawnAmbiguous if the Job cannot be read."""
        try:
            return await self._client.find_job(manifests.job_name(self._scope, name)) is not None
        except SpawnError as exc:
            raise SpawnAmbiguous(
                f"{_subject(name)} was not started again, because it might already be running: {exc}; try again"
            ) from exc

    async def _adopt(self, name: Name) -> tuple[KubernetesJob, Sequence[KubernetesPod]] | None:
        """Return the worker's existing Job with its pods. If the Job has ended, deletes it and returns None.

        Raises SpawnAmbiguous if Kubernetes does not answer.
        """
        try:
            job = await self._client.find_job(manifests.job_name(self._scope, name))
            if job is None:
                return None
            pods = [pod for pod in await self._pods_of(name) if pod.job_uid == job.metadata.uid]
            instance = self._instance(name, job, pods)
            if not job.is_over and not (job.is_started and instance.state is InstanceState.EXITED):
                return job, pods
            await self._end(name, job)
        except SpawnError as exc:
            raise SpawnAmbiguous(
                f"{_subject(name)} has a Job that might be running: {exc}; list the workers before trying again"
            ) from exc
        return None

    async def _start(self, order: Order, name: Name, job: KubernetesJob) -> KubernetesJob | None:
        """Create the worker's Secret and start its Job. Returns the Job; None if it no longer exists.

        If the Secret cannot be created, deletes the Job. Raises SpawnFailed, SpawnAmbiguous.
        """
        secret = job.metadata.annotations.get(manifests.SECRET_NAME, "")
        meta = job.metadata
        body = manifests.secret_manifest(meta.name, meta.uid, secret, order, self._settings, self._environment)
        try:
            await self._client.create_secret(body)
        except SpawnError as exc:
            try:
                await self._end(name, job)
            except SpawnError as also:
                log.warning("%s: its Job, which was not started, could not be deleted: %s", _subject(name), also)
            raise SpawnFailed(f"{_subject(name)}: {exc}", cause=exc.cause, retry_after=exc.retry_after) from exc
        try:
            return await self._client.start_job(meta.name, manifests.start_patch())
        except KubernetesRefused as exc:
            raise SpawnFailed(f"{_subject(name)}: {exc}", cause=exc.cause, retry_after=exc.retry_after) from exc
        except SpawnError as exc:
            raise SpawnAmbiguous(f"{_subject(name)} may have been started: {exc}; list the workers before retrying") from exc

    # Ending

    async def _end(self, name: Name, only: KubernetesJob | None) -> None:
        """Delete the worker's Job and pods, and wait until they are gone. ``only``: delete only this Job with its pods, not a
        later Job of the worker.

        Raises SpawnError if a pod does not end, such as when its node does not answer.
        """
        deadline, polls, deleted = self._clock.elapsed() + _GONE_WITHIN, iter(_POLLS), set[str]()
        pause = _POLLS[0]
        while True:
            job = await self._client.find_job(manifests.job_name(self._scope, name))
            if job is not None and only is not None and job.metadata.uid != only.metadata.uid:
                return
            if job is not None and job.metadata.uid not in deleted:
                await self._client.delete_job(job)
                deleted.add(job.metadata.uid)
            pods = [pod for pod in await self._pods_of(name) if only is None or pod.job_uid == only.metadata.uid]
            for pod in pods:
                if pod.metadata.uid not in deleted:
                    await self._client.delete_pod(pod, _TERMINATE_GRACE)
                    deleted.add(pod.metadata.uid)
            if job is None and not pods:
                return
            if self._clock.elapsed() > deadline:
                nodes = ", ".join(sorted({pod.spec.node_name for pod in pods if pod.spec.node_name})) or "none"
                raise SpawnError(
                    f"{_subject(name)}: expected its pod to end within {_GONE_WITHIN.total_seconds():.0f} s, but it still "
                    f"exists (node: {nodes}); check that the node is up: kubectl get nodes"
                )
            pause = next(polls, pause)
            await self._clock.sleep(pause)

    # Looking

    async def _instances(self, selector: str) -> dict[Name, Instance]:
        """Return the instances of all Jobs and pods with these labels.

        Jobs are read before pods, so that for a Job that has ended the pod with its exit code is read, too.
        """
        jobs, pods = await self._client.jobs(selector), await self._client.pods(selector)
        refused = await self._refused(jobs, pods)
        jobs_of: dict[Name, KubernetesJob] = {}
        for job in jobs:
            if (name := manifests.read_name(job.metadata.annotations)) is not None:
                jobs_of[name] = job
        pods_of: dict[Name, list[KubernetesPod]] = defaultdict(list)
        for pod in pods:
            if (name := manifests.read_name(pod.metadata.annotations)) is not None:
                pods_of[name].append(pod)
        found = {}
        for name in {*jobs_of, *pods_of}:
            own = jobs_of.get(name)
            mine = [pod for pod in pods_of[name] if own is None or pod.job_uid == own.metadata.uid] or pods_of[name]
            found[name] = self._instance(name, own, mine, refused.get(own.metadata.uid, "") if own else "")
        return found

    async def _refused(self, jobs: Sequence[KubernetesJob], pods: Sequence[KubernetesPod]) -> Mapping[str, str]:
        """Return the reason why a Job's pod could not be created, by the Job's uid.

        The reasons are in Kubernetes' events, which are read only if a Job has had no pod for some seconds.
        """
        having = {pod.job_uid for pod in pods}
        since = self._clock.now() - _POD_WITHIN
        lacking = [job for job in jobs if not job.is_over and job.metadata.uid not in having]
        if not any(job.metadata.creation_timestamp < since for job in lacking):
            return {}
        try:
            return {event.involved_object.uid: event.message for event in await self._client.failed_pods()}
        except SpawnError as exc:
            log.warning("could not read the events that say why pods were not created: %s; trying again later", exc)
            return {}

    async def _unlisted(self, missing: Sequence[Name]) -> Mapping[Name, Instance]:
        """Look up by name the workers that Kubernetes' list lacks, in case the list is outdated. Return those that exist.

        If none of the first few exists, the others are not looked up: they count as ended, too.
        """
        found: dict[Name, Instance] = {}
        for at in range(0, len(missing), _LOOKUPS):
            names = missing[at : at + _LOOKUPS]
            looked = zip(names, await asyncio.gather(*map(self._look, names)), strict=True)
            found |= {name: instance for name, instance in looked if instance is not None}
            if not found:
                break
        return found

    async def _look(self, name: Name) -> Instance | None:
        """Look up a worker by its name, and return its instance; None if its Job no longer exists."""
        job = await self._client.find_job(manifests.job_name(self._scope, name))
        if job is None:
            return None
        return self._instance(name, job, [pod for pod in await self._pods_of(name) if pod.job_uid == job.metadata.uid])

    async def _pods_of(self, name: Name) -> Sequence[KubernetesPod]:
        return await self._client.pods(manifests.worker_selector(self._scope, name))

    def _instance(self, name: Name, job: KubernetesJob | None, pods: Sequence[KubernetesPod], refused: str = "") -> Instance:
        began = job.metadata.creation_timestamp if job is not None and not job.is_started else None
        is_unfinished = began is not None and self._clock.now() - began > self._settings.settle
        price = self._settings.price_per_hour
        return worker_instance(name, job, pods, price=price, refused=refused, is_unfinished=is_unfinished)

    def _note(self, pool_id: PoolId, found: Mapping[Name, Instance]) -> None:
        """Remember which workers are alive, and log each new problem of a worker once."""
        for name in [name for name in self._seen if name[0] == pool_id and name not in found]:
            del self._seen[name]
        for name, instance in found.items():
            problem = instance.meta.get("problem", "")
            if problem and self._problems.get(name) != problem:
                log.warning("%s: %s", _subject(name), problem)
            self._problems[name] = problem
            if instance.state is InstanceState.EXITED:
                self._seen.pop(name, None)
            else:
                self._seen[name] = instance.ref
        for name in [name for name in self._problems if name[0] == pool_id and name not in found]:
            del self._problems[name]

    def _lock(self, name: Name) -> asyncio.Lock:
        return self._locks.setdefault(name, asyncio.Lock())

    def _check_open(self) -> None:
        if self._stack is None:
            raise InvalidInput("expected an open spawner; use it as: async with KubernetesSpawner(...) as spawner")


def _subject(name: Name) -> str:
    return f"worker {name[1]} of {name[0]}"
