"""The interface of every spawner. All its calls are safe to repeat."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from types import TracebackType
from typing import Any, Protocol, Self, runtime_checkable

from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId

LAUNCHED = "launched-"  #: prefix of the pool name of processes that are no workers: they have no row and end by themselves
VOLUME_PATH = (
    "DRUMBEAT_VOLUME_PATH"  #: in a worker's environment: where its volume is mounted, so that it reports the free space
)
VOLUME_ID = "DRUMBEAT_VOLUME_ID"  #: the provider's name of that volume, if it can be expanded


class InstanceState(StrEnum):
    """The state of an instance, as its provider reports it."""

    PENDING = "pending"  #: accepted, not running yet
    RUNNING = "running"
    EXITED = "exited"  #: ended; it will not run again under this name


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A worker to be started. Its name is chosen beforehand, so that a repeated order starts only one."""

    pool_id: PoolId
    worker_id: WorkerId
    slot: int
    group_count: int
    command: Sequence[str] = ()  #: empty: the spawner's default worker command
    environment: Mapping[str, str] = field(default_factory=dict)  #: secrets go here, never into the command


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A worker as its provider knows it."""

    pool_id: PoolId
    worker_id: WorkerId
    ref: str  #: the provider's own name for it (a pid, a pod id)
    state: InstanceState
    started_at: datetime | None = None
    exit_code: int | None = None
    price_per_hour: float | None = None  #: current price, if the provider reports it
    meta: Mapping[str, Any] = field(default_factory=dict)  #: other details from the provider: location, GPU memory


@dataclass(frozen=True, slots=True, kw_only=True)
class SpawnerTraits:
    """The properties in which spawners differ."""

    name: str
    unique_names: bool  #: the provider itself refuses a second instance of one name
    outlives_controller: bool  #: instances keep running when the spawner's process ends
    reports_exit_codes: bool
    price_per_hour: float = 0.0  #: the highest price of an instance; its actual price is in ``Instance``
    billing_granule: timedelta = timedelta(seconds=1)
    usual_start: timedelta = timedelta(seconds=1)  #: typical time from spawn to a running process
    settle: timedelta = timedelta()  #: how long an instance may still appear if its spawn got no answer
    expands_volumes: bool = False  #: it also implements ``ExpandsVolumes``
    owns_all: bool = False  #: every instance it shows was started for this store
    asked_with: str = ""  #: a fingerprint that changes with the API key or the settings; does not reveal the key


@runtime_checkable
class ExpandsVolumes(Protocol):
    """A spawner that can expand volumes."""

    async def expand_volume(self, volume: str, to_gb: int, seen_gb: float) -> int:
        """Expand a volume to this size unless it is already as large, and return its size in GB. Safe to repeat; never shrinks.

        Raises SpawnError, also if the volume is far smaller than the disk that its workers see (``seen_gb``).
        """
        ...


@runtime_checkable
class ListsPools(Protocol):
    """A spawner that can list the pools that have instances at its provider."""

    async def pools(self) -> Set[PoolId]:
        """Pools with a pending or running instance. Raises SpawnError."""
        ...


@runtime_checkable
class ForgetsRefusals(Protocol):
    """A spawner that remembers its provider's refusals, and can forget them to try again."""

    def forget_refusals(self, pool_id: PoolId) -> None:
        """Forget this pool's refusals, so that it is tried again; refusals to other pools of the account are forgotten too."""
        ...


class Spawner(Protocol):
    """Starts, lists and stops workers somewhere. An async context manager."""

    @property
    def traits(self) -> SpawnerTraits: ...

    async def spawn(self, order: Order) -> Instance:
        """Start a worker, or return the one that already runs under that name.

        Raises SpawnFailed when certainly nothing was started, SpawnAmbiguous when that is unknown.
        """
        ...

    async def list(self, pool_id: PoolId) -> Sequence[Instance]:
        """All pending and running instances of the pool, and those that exited while this spawner watched.

        Some spawners also know of instances that exited before and were not terminated since.
        """
        ...

    async def drain(self, pool_id: PoolId, worker_id: WorkerId) -> None:
        """Ask the instance to finish and leave (SIGTERM, or the provider's equivalent). Harmless if it is gone."""
        ...

    async def terminate(self, pool_id: PoolId, worker_id: WorkerId) -> None:
        """End the instance now. Returns once it is gone; harmless if it already was."""
        ...

    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
