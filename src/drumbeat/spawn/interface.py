"""The interface of spawners, which start and stop workers at a provider. All calls are safe to repeat."""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from types import TracebackType
from typing import Any, Protocol, Self, runtime_checkable

from drumbeat.core.errors import SpawnCause, SpawnError, Unanswered
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import REFUSED, SPAWN_FAILED, Worker, WorkerId, WorkerStatus

LAUNCHED = "launched-"  #: a pool name with this prefix marks a process that is no worker and has no row in the store
VOLUME_PATH = "DRUMBEAT_VOLUME_PATH"  #: environment variable: where the worker's volume is mounted
VOLUME_ID = "DRUMBEAT_VOLUME_ID"  #: environment variable: the provider's name of the volume, if it can be expanded


class InstanceState(StrEnum):
    """The state of an instance (a process or pod of a worker), as its provider reports it."""

    PENDING = "pending"  #: accepted by the provider, but not running yet
    RUNNING = "running"
    EXITED = "exited"  #: ended; this instance will not run again


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A request to start a worker. The caller chooses the worker's id, so that a repeated order starts no second worker."""

    pool_id: PoolId
    worker_id: WorkerId
    slot: int
    group_count: int
    command: Sequence[str] = ()  #: the command to run; empty: the spawner's default
    environment: Mapping[str, str] = field(default_factory=dict)  #: secrets go here, never into the command
    is_first: bool = False  #: whether the worker was never asked for before, so that no instance of it can exist

    def command_line(self, usual: Sequence[str]) -> tuple[str, ...]:
        """Return the worker's command: the one in this start request, or else ``usual`` with arguments for the worker."""
        run = ("--run-id", self.pool_id, "--worker-id", self.worker_id)
        group = ("--worker-group-id", str(self.slot), "--worker-group-count", str(self.group_count))
        return tuple(self.command) or (*usual, *run, *group)


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A process or pod of a worker, as its provider reports it."""

    pool_id: PoolId
    worker_id: WorkerId
    ref: str  #: the provider's own id of the instance: a pid or a pod id
    state: InstanceState
    started_at: datetime | None = None
    exit_code: int | None = None
    price_per_hour: float | None = None  #: the current price, if the provider reports it
    meta: Mapping[str, Any] = field(default_factory=dict)  #: other details from the provider: location, GPU memory


@dataclass(frozen=True, slots=True, kw_only=True)
class SpawnerTraits:
    """The properties in which spawners differ, such as price and start time."""

    name: str
    unique_names: bool  #: whether the provider refuses a second instance of the same name
    outlives_controller: bool  #: whether instances keep running when the spawner's process ends
    reports_exit_codes: bool
    reports_logs: bool = False  #: whether it also implements ``ReadsLogs``
    preemption_notice: timedelta | None = None  #: how early the provider announces the end of an instance; None: never
    price_per_hour: float = 0.0  #: the most an instance may cost; ``Instance`` has its actual price
    billing_granule: timedelta = timedelta(seconds=1)  #: the unit of time in which the provider bills
    usual_start: timedelta = timedelta(seconds=1)  #: typical time from spawn to a running process
    settle: timedelta = timedelta()  #: after a spawn without an answer: how long its instance may still appear
    expands_volumes: bool = False  #: whether it also implements ``ExpandsVolumes``
    owns_all: bool = False  #: whether every listed instance was started for this store
    keeps_drained: bool = True  #: whether exit code and output of an instance can still be read after it was drained
    asked_with: str = ""  #: a hash of API key and settings, which does not reveal the key


@runtime_checkable
class ExpandsVolumes(Protocol):
    """A spawner that can expand the storage volumes of its workers."""

    async def expand_volume(self, volume: str, to_gb: int, seen_gb: float) -> int:
        """Expand a volume to ``to_gb`` unless it is that large already, and return its size in GB. Never shrinks it.

        ``seen_gb`` is the size of the disk that workers report. Raises SpawnError, also if that is clearly larger than the
        volume: the workers then use another disk, and an expansion would not help.
        """
        ...


@runtime_checkable
class ListsPools(Protocol):
    """A spawner that can list the pools that have instances at its provider."""

    async def pools(self) -> Set[PoolId]:
        """Return the pools that have a pending or running instance. Raises SpawnError.

        Pools whose instances are all on hosts or engines that do not answer are left out.
        """
        ...


@runtime_checkable
class ReadsLogs(Protocol):
    """A spawner that can return what its instances wrote to stdout and stderr."""

    async def logs(self, pool_id: PoolId, worker_id: WorkerId, *, lines: int = 200) -> str:
        """Return the last lines that the worker's instance wrote. They are kept after it ends, until it is terminated.

        Raises NotFound if the spawner knows no such instance, SpawnError if its output cannot be read.
        """
        ...


@runtime_checkable
class ForgetsRefusals(Protocol):
    """A spawner that remembers when its provider refused to start instances, and can forget that to try again at once."""

    def forget_refusals(self, pool_id: PoolId) -> None:
        """Forget the provider's refusals (for all pools) and this pool's failed starts, so that starts are retried at once."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SilentPlace:
    """A host or an engine that does not answer, so that it is unknown which workers run there."""

    name: str
    error: SpawnError
    may_hold: Callable[[Worker], bool]  #: whether the worker with this row might be there
    is_down: bool = False  #: whether the workers' machine itself cannot be reached, not only a service that lists workers

    def may_run(self, row: Worker) -> bool:
        """Whether an instance of this worker might still run here, so that the worker must not count as ended.

        False for a worker that left by itself or whose start was refused. Also False for a lost worker (one without
        heartbeats) if its machine cannot be reached (``is_down``): the machine is presumed dead, and another worker can be
        started instead.
        """
        if row.reaped_at is not None or row.meta.get(SPAWN_FAILED) or row.meta.get(REFUSED) or not self.may_hold(row):
            return False
        if row.status is WorkerStatus.LOST:
            return not self.is_down
        return row.is_live or bool(row.meta.get("drain_timed_out"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachableList:
    """The instances at the places (hosts or engines) that answer, and the places that do not answer."""

    instances: Sequence[Instance]
    silent: Sequence[SilentPlace] = ()
    is_answered: bool = True  #: whether a place has answered, or no silent place can have an instance of the pool

    @property
    def problem(self) -> str:
        """Return the errors of the places that do not answer, in one line."""
        return "; ".join(str(place.error) for place in self.silent)

    def hidden(self, rows: Sequence[Worker]) -> Sequence[WorkerId]:
        """Return the workers that are not listed but might run at a silent place (one that does not answer)."""
        listed = {one.worker_id for one in self.instances}
        missing = [row for row in rows if row.worker_id not in listed] if self.silent else []
        return [row.worker_id for row in missing if any(place.may_run(row) for place in self.silent)]

    def may_hold(self, row: Worker) -> Sequence[SilentPlace]:
        """Return the silent places (those that do not answer) where the worker might be."""
        return [place for place in self.silent if place.may_hold(row)]


@runtime_checkable
class ListsReachable(Protocol):
    """A spawner with several places (hosts or engines) for workers: some can be silent while others answer."""

    async def list_reachable(self, pool_id: PoolId | None) -> ReachableList:
        """Return the instances of a pool, or of all pools, at the hosts or engines that answer, and the silent ones."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HostReport:
    """The result of a check of one host. ``problem`` says in one line why workers cannot run there; None if they can."""

    name: str
    problem: str | None = None
    cause: SpawnCause | None = None
    python: str | None = None
    drumbeat: str | None = None  #: the version that the workers' Python imports
    clock_offset: timedelta | None = None  #: how far the host's clock is ahead of this one's
    slots: int = 0
    taken: int = 0
    is_chosen: bool = True  #: whether its labels allow new workers there


@runtime_checkable
class ChecksHosts(Protocol):
    """A spawner that runs workers on several hosts, which can be checked one by one."""

    async def check_hosts(self) -> Sequence[HostReport]:
        """Ask each host whether workers can run there."""
        ...

    def at_host(self, name: str) -> "Spawner":
        """Return a spawner for one of the hosts only. Raises InvalidSettings for an unknown name."""
        ...


class Spawner(Protocol):
    """Starts, lists and stops workers at a provider. Use it as an async context manager."""

    @property
    def traits(self) -> SpawnerTraits: ...

    async def spawn(self, order: Order) -> Instance:
        """Start a worker, or return its instance if it already runs.

        Raises SpawnFailed if the worker was certainly not started, SpawnAmbiguous if it might have been.
        """
        ...

    async def list(self, pool_id: PoolId) -> Sequence[Instance]:
        """Return all pending and running instances of the pool, and those that exited while this spawner existed.

        Some spawners also return instances that exited earlier, until they are terminated. The list is always complete:
        if a host or an engine does not answer, this raises Unanswered, because a worker that is missing in the list counts as
        ended. A spawner that implements ``ListsReachable`` can also list only the hosts and engines that answer.
        """
        ...

    async def drain(self, pool_id: PoolId, worker_id: WorkerId) -> None:
        """Ask the instance to finish and leave (SIGTERM, or the provider's equivalent). Harmless if it has ended.

        Raises SpawnError (Unanswered if the provider cannot be reached).
        """
        ...

    async def terminate(self, pool_id: PoolId, worker_id: WorkerId) -> None:
        """End the instance now. Returns once it has ended; harmless if it had ended before. Raises like ``drain``."""
        ...

    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


async def list_reachable(spawner: Spawner, pool_id: PoolId) -> ReachableList:
    """Return the instances of a pool at the hosts and engines that answer. Raises SpawnError (Unanswered if none answers)."""
    if not isinstance(spawner, ListsReachable):
        return ReachableList(instances=await spawner.list(pool_id))
    found = await spawner.list_reachable(pool_id)
    if not found.is_answered:
        raise Unanswered(found.problem, cause=found.silent[0].error.cause)
    return found
