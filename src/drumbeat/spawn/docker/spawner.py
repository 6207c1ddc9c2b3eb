"""Starts, lists and ends workers as containers of a Docker daemon. Workers keep running when this process ends."""

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence, Set
from contextlib import nullcontext
from datetime import timedelta
from types import TracebackType
from typing import Any, Final, Self
from weakref import WeakValueDictionary

from drumbeat.core.clock import Clock, SystemClock
from drumbeat.core.errors import (
    InvalidInput,
    InvalidSettings,
    NotFound,
    SpawnAmbiguous,
    SpawnCause,
    SpawnError,
    SpawnFailed,
    Unanswered,
)
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.docker.client import Connect, DaemonRefused, DaemonSilent, DaemonUnreachable, DockerClient
from drumbeat.spawn.docker.containers import (
    ENGINE_LABEL,
    OCCUPYING,
    POOL_LABEL,
    SCOPE_LABEL,
    WORKER_LABEL,
    ContainerPlan,
    WorkerContainer,
    search_path,
    short_id,
    taken_gpus,
)
from drumbeat.spawn.docker.settings import DockerSettings, PullPolicy
from drumbeat.spawn.interface import Instance, InstanceState, Order, SpawnerTraits
from drumbeat.spawn.names import Name, instance_name, scope_name
from drumbeat.spawn.traits import remote_traits

log = logging.getLogger(__name__)

_TRIES: Final = 8  #: how often a start is begun again because the worker's container was removed meanwhile
_LOOK: Final = timedelta(milliseconds=50)  #: time between two looks at a container that another request removes
_FOREIGN = "foreign container"  #: in a DaemonRefused: Drumbeat did not start the container with the worker's name


class DockerSpawner:
    """Starts each worker as a container whose name is unique to the worker, so that a daemon never runs a worker twice.

    Spawners with the same ``scope`` and daemon see the same workers, by the containers' labels. An exit code of 128 + n means
    that signal n ended the worker.
    """

    def __init__(
        self,
        settings: DockerSettings,
        environment: Mapping[str, str],
        scope: str,
        clock: Clock | None = None,
        name: str = "docker",
        connect: Connect | None = None,
    ) -> None:
        """``environment`` is set for the workers; ``scope`` identifies the store; ``name`` is the name of this engine.

        ``connect`` returns the SDK's client, for tests. Raises InvalidSettings if a variable of the settings is not set.
        """
        self._name = name
        self._settings = settings
        self._environment = {**environment, **_passed_on(settings.variables)}
        self._scope = scope_name(scope)
        self._clock = clock or SystemClock()
        self._connect = connect
        self._client: DockerClient | None = None
        self._locks: WeakValueDictionary[Name, asyncio.Lock] = WeakValueDictionary()
        self._choosing = asyncio.Lock()  #: held while a slot or GPUs are chosen
        self._pulling = asyncio.Lock()
        self._found_programs: set[str] = set()
        self._seen: dict[str, WorkerContainer] = {}  #: by id, as last inspected

    @property
    def traits(self) -> SpawnerTraits:
        return remote_traits(self._name, self._settings, self._settings.price_per_hour)

    async def spawn(self, order: Order) -> Instance:
        client, name = self._opened(), (order.pool_id, order.worker_id)
        subject = f"worker {name[1]} of {name[0]}"
        async with self._locks.setdefault(name, asyncio.Lock()):
            try:
                return await self._start(client, order, name)
            except DaemonRefused as exc:
                raise SpawnFailed(f"{subject} could not be started: {exc}", cause=exc.cause) from exc
            except DaemonUnreachable as exc:
                if order.is_first:
                    raise SpawnFailed(f"{subject} could not be started: {exc}", cause=exc.cause) from exc
                raise SpawnAmbiguous(f"{subject} was not started again, because it might already be running: {exc}") from exc
            except DaemonSilent as exc:
                raise SpawnAmbiguous(f"{subject} may have been started: {exc}; list the workers before trying again") from exc

    async def list(self, pool_id: PoolId) -> Sequence[Instance]:
        client = self._opened()
        rows = await client.list({SCOPE_LABEL: self._scope, POOL_LABEL: pool_id})
        containers = await asyncio.gather(*(self._inspected(client, row) for row in rows))
        known = {each.id: each for each in containers if each is not None}
        others = {key: each for key, each in self._seen.items() if each.labels.get(POOL_LABEL) != pool_id}
        self._seen = {**others, **known}
        return [each.instance(self._settings.price_per_hour) for each in known.values()]

    async def pools(self) -> Set[PoolId]:
        """Return the pools of this store that have created or running containers. Raises Unanswered."""
        rows = await self._opened().list({SCOPE_LABEL: self._scope}, OCCUPYING)
        return {PoolId(row["Labels"][POOL_LABEL]) for row in rows}

    async def drain(self, pool_id: PoolId, worker_id: WorkerId) -> None:
        """Send SIGTERM to the worker. A container that was created but not started is removed."""
        client, name = self._opened(), (pool_id, worker_id)
        found = await self._find(client, name)
        if found is None or found.state is InstanceState.EXITED:
            return
        if found.status == "created" and await client.remove(found.id, force=False):
            return
        await client.signal(found.id, "SIGTERM")

    async def terminate(self, pool_id: PoolId, worker_id: WorkerId) -> None:
        """Kill the worker's container and remove it, with its output."""
        client, name = self._opened(), (pool_id, worker_id)
        found = await self._find(client, name)
        if found is not None:
            await self._remove(client, found)

    async def logs(self, pool_id: PoolId, worker_id: WorkerId, *, lines: int = 200) -> str:
        """Return the last lines of the worker's output. Raises SpawnError; NotFound, for example for a terminated worker."""
        client, name = self._opened(), (pool_id, worker_id)
        found = await self._find(client, name)
        text = await client.logs(found.id, lines) if found is not None else None
        if text is None:
            raise NotFound(f"{client.place} has no container of worker {worker_id} of pool {pool_id}; it may have been removed")
        return text

    async def __aenter__(self) -> Self:
        self._client = DockerClient(self._settings, self._connect)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    # Starting

    async def _start(self, client: DockerClient, order: Order, name: Name) -> Instance:
        """Find the worker's container or create it, and start it. Begins again if the container is removed meanwhile."""
        found = None if order.is_first else await self._earlier(client, name)
        for _ in range(_TRIES):
            if found is None:
                created = await self._create(client, order, name)
                found = await self._earlier(client, name) if created is None else None
                if created is not None and await self._run(client, created, order):
                    return self._started(created, name)
            elif found.state is InstanceState.RUNNING:
                return found.instance(self._settings.price_per_hour)
            elif found.state is InstanceState.EXITED:
                await self._remove(client, found)
                found = None
            elif await self._run(client, found.id, order):
                return self._started(found.id, name)
            else:
                found = None
        raise SpawnFailed(
            f"worker {name[1]} of {name[0]}: its container was removed {_TRIES} times during the start; check what removes it"
        )

    async def _earlier(self, client: DockerClient, name: Name) -> WorkerContainer | None:
        """Return the container of an earlier start of the worker; None if there is none. Raises SpawnAmbiguous if the daemon
        does not say, DaemonRefused if the container is not Drumbeat's."""
        try:
            return await self._find(client, name)
        except DaemonRefused as exc:
            if exc.daemon_message == _FOREIGN:
                raise
            raise SpawnAmbiguous(
                f"worker {name[1]} of {name[0]} was not started again, because it might already be running: {exc}"
            ) from exc

    async def _create(self, client: DockerClient, order: Order, name: Name) -> str | None:
        """Create the worker's container and return its id; None if another request has created it. Raises SpawnFailed."""
        if self._settings.pull is PullPolicy.ALWAYS:
            await self._pull(client)
        is_limited = self._settings.slots is not None or bool(self._settings.gpu_ids)
        async with self._choosing if is_limited else nullcontext():
            gpu_ids = await self._reserved(client, name) if is_limited else ()
            created = await self._requested(client, self._plan(order, name, gpu_ids))
            if created is not None and is_limited:
                await self._check_reserved(client, name, created, gpu_ids)
        return created

    async def _requested(self, client: DockerClient, plan: ContainerPlan) -> str | None:
        """Create the container, and pull its image if the daemon lacks it. Returns its id; None if its name is taken.

        If the daemon's answer is lost, looks for the container by its name; raises DaemonSilent if there is none.
        """
        request, container = plan.request(self._settings), self._container_name(plan.worker)
        try:
            return await client.create(container, request)
        except DaemonSilent:
            if await client.inspect(container) is None:
                raise
            return None
        except DaemonRefused as exc:
            if not exc.lacks_image or self._settings.pull is not PullPolicy.MISSING:
                raise
        await self._pull(client)
        return await client.create(container, request)

    async def _run(self, client: DockerClient, identifier: str, order: Order) -> bool:
        """Start a created container; False if it was removed. If it cannot be started, removes it and raises."""
        await self._check_program(client, identifier, order)
        try:
            await client.start(identifier)
        except DaemonRefused as exc:
            if exc.lacks_container:
                return False
            await self._discard(client, identifier)
            raise
        except DaemonSilent:
            told = await client.inspect(identifier)
            if told is None or WorkerContainer.from_inspection(told).status == "created":
                raise
        return True

    async def _pull(self, client: DockerClient) -> None:
        """Fetch the image, one pull at a time."""
        async with self._pulling:
            log.info("pulling image %s", self._settings.image)
            await client.pull(self._settings.image)

    async def _check_program(self, client: DockerClient, identifier: str, order: Order) -> None:
        """Raise SpawnFailed if the container lacks the worker's program: Docker itself would report the start as a success."""
        program = order.command_line(self._settings.command)[0]
        if program in self._found_programs:
            return
        if not await self._has_program(client, identifier, program):
            await self._discard(client, identifier)
            raise SpawnFailed(
                f"worker {order.worker_id} of {order.pool_id} could not be started: the image {self._settings.image} has no "
                f"program {program}; install Drumbeat in the image, or correct the setting command",
                cause=SpawnCause.BAD_REQUEST,
            )
        self._found_programs.add(program)

    async def _has_program(self, client: DockerClient, identifier: str, program: str) -> bool:
        """Whether a program exists in a container. Also True if that is unknown: for a relative path or a removed container."""
        told = await client.inspect(identifier)
        if told is None or (not program.startswith("/") and "/" in program):
            return True
        folders = (
            [""] if "/" in program else [f"{each}/" for each in search_path(WorkerContainer.from_inspection(told).variables)]
        )
        for folder in folders:
            if await client.has_file(identifier, f"{folder}{program}"):
                return True
        return await client.inspect(identifier) is None

    # Slots and GPUs

    async def _reserved(self, client: DockerClient, name: Name) -> Sequence[str]:
        """Return the ids of free GPUs for one worker. Raises SpawnFailed if all slots are taken, or too few GPUs are free."""
        rows = await self._occupying(client)
        if self._settings.slots is not None and len(rows) >= self._settings.slots:
            raise self._no_room(name, f"all {self._settings.slots} slots are taken")
        whole, taken = self._settings.gpu_ids, taken_gpus(rows)
        wanted = len(whole) if self._settings.gpu_count < 0 else self._settings.gpu_count
        free = [each for each in whole if each not in taken]
        if whole and len(free) < wanted:
            raise self._no_room(name, f"{len(free)} of {len(whole)} GPUs are free, and it needs {wanted}")
        return free[:wanted]

    async def _check_reserved(self, client: DockerClient, name: Name, identifier: str, gpu_ids: Sequence[str]) -> None:
        """Remove the created container again if another controller took the last slot or a GPU at the same time."""
        others = [row for row in await self._occupying(client) if row["Id"] != identifier]
        is_full = self._settings.slots is not None and len(others) >= self._settings.slots
        if is_full or taken_gpus(others) & set(gpu_ids):
            await self._discard(client, identifier)
            raise self._no_room(name, "another controller started a worker at the same time")

    async def _occupying(self, client: DockerClient) -> Sequence[Mapping[str, Any]]:
        return await client.list({ENGINE_LABEL: self._name}, OCCUPYING)

    def _no_room(self, name: Name, why: str) -> SpawnFailed:
        advice = "wait until a worker ends, or raise slots"
        return SpawnFailed(
            f"worker {name[1]} of {name[0]}: no room at engine {self._name}: {why}; {advice}", cause=SpawnCause.NO_CAPACITY
        )

    # Containers

    async def _find(self, client: DockerClient, name: Name) -> WorkerContainer | None:
        """Return the worker's container; None if there is none. Raises DaemonRefused if Drumbeat did not create it."""
        told = await client.inspect(self._container_name(name))
        if told is None:
            return None
        found = WorkerContainer.from_inspection(told)
        if not self._labels(name).items() <= found.labels.items():
            raise DaemonRefused(
                f"expected the container {found.name} ({short_id(found.id)}) to be that of worker {name[1]} of {name[0]}, but "
                f"Drumbeat did not start it; rename or remove it",
                status=409,
                daemon_message=_FOREIGN,
                cause=SpawnCause.BAD_REQUEST,
            )
        return found

    async def _inspected(self, client: DockerClient, row: Mapping[str, Any]) -> WorkerContainer | None:
        """Return the details of a listed container; the daemon is asked only if its state has changed. None if it is gone."""
        seen = self._seen.get(row["Id"])
        if seen is not None and seen.status == row["State"] and seen.status != "created":
            return seen
        told = await client.inspect(row["Id"])
        return None if told is None else WorkerContainer.from_inspection(told)

    async def _remove(self, client: DockerClient, found: WorkerContainer) -> None:
        """Kill and remove a container, and return once it is gone. Raises SpawnError if it still runs."""
        deadline = self._clock.elapsed() + self._settings.timeout
        try:
            while not await client.remove(found.id, force=True):
                if await client.inspect(found.id) is None:
                    return
                if self._clock.elapsed() > deadline:
                    raise SpawnError(
                        f"container {found.name}: not removed within {self._settings.timeout.total_seconds():g} s; "
                        "look at it with: docker ps --all"
                    )
                await self._clock.sleep(_LOOK)
        except DaemonRefused as exc:
            told = await client.inspect(found.id)
            if told is not None and WorkerContainer.from_inspection(told).state is not InstanceState.EXITED:
                raise SpawnError(f"container {found.name} could not be ended: {exc}", cause=exc.cause) from exc
            log.warning("container %s has ended, but could not be removed: %s; remove it with: docker rm", found.name, exc)

    async def _discard(self, client: DockerClient, identifier: str) -> None:
        """Remove a container that was not started. A failure is only logged: the worker's next start removes it."""
        try:
            await client.remove(identifier, force=True)
        except (Unanswered, DaemonRefused) as exc:
            log.warning(
                "failed to remove container %s, which was not started: %s; the worker's next start removes it",
                short_id(identifier),
                exc,
            )

    def _started(self, identifier: str, name: Name) -> Instance:
        return Instance(
            pool_id=name[0],
            worker_id=name[1],
            ref=short_id(identifier),
            state=InstanceState.RUNNING,
            started_at=self._clock.now(),
            price_per_hour=self._settings.price_per_hour,
            meta={"container": self._container_name(name), "image": self._settings.image},
        )

    def _plan(self, order: Order, name: Name, gpu_ids: Sequence[str]) -> ContainerPlan:
        labels = {**self._labels(name), ENGINE_LABEL: self._name}
        return ContainerPlan(order=order, labels=labels, environment=self._environment, gpu_ids=gpu_ids)

    def _labels(self, name: Name) -> Mapping[str, str]:
        """Return the labels by which a worker's container is found."""
        return {SCOPE_LABEL: self._scope, POOL_LABEL: name[0], WORKER_LABEL: name[1]}

    def _container_name(self, name: Name) -> str:
        return instance_name(self._scope, *name)

    def _opened(self) -> DockerClient:
        if self._client is None:
            raise InvalidInput("expected an open spawner; use it as: async with DockerSpawner(...) as spawner")
        return self._client


def _passed_on(variables: Sequence[str]) -> Mapping[str, str]:
    """Return these variables of this process's environment. Raises InvalidSettings if one is not set."""
    missing = [name for name in variables if name not in os.environ]
    if missing:
        raise InvalidSettings(
            f"Docker: expected the environment variable {missing[0]}, got none; set it, or correct the setting variables"
        )
    return {name: os.environ[name] for name in variables}
