"""What every spawner promises: ask twice and it is asked once."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from types import TracebackType
from typing import Any, Protocol, Self, runtime_checkable

from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId

LAUNCHED = "launched-"  #: begins the pool name of processes that are no workers: they have no row, and end by themselves
VOLUME_PATH = "DRUMBEAT_VOLUME_PATH"  #: in a worker's environment: where its volume is mounted; it then tells how full it is
VOLUME_ID = "DRUMBEAT_VOLUME_ID"  #: and what its provider calls that volume, if it is one that can be expanded


class InstanceState(StrEnum):
    """What a provider says of an instance."""

    PENDING = "pending"  #: accepted, not running yet
    RUNNING = "running"
    EXITED = "exited"  #: over; it will not run again under this name


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A worker to be started. Its name is chosen before, so that asking twice is asking once."""

    pool_id: PoolId
    worker_id: WorkerId
    slot: int
    group_count: int
    command: Sequence[str] = ()  #: empty: the spawner's usual worker command
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
    price_per_hour: float | None = None  #: what it costs now, where its provider tells
    meta: Mapping[str, Any] = field(default_factory=dict)  #: what else its provider tells: where it is, its GPU's memory


@dataclass(frozen=True, slots=True, kw_only=True)
class SpawnerTraits:
    """How spawners differ, declared."""

    name: str
    unique_names: bool  #: the provider itself refuses a second instance of one name
    outlives_controller: bool  #: instances go on when the spawner's process ends
    reports_exit_codes: bool
    price_per_hour: float = 0.0  #: the most that one may cost; what it does cost is told by its instance
    billing_granule: timedelta = timedelta(seconds=1)
    usual_start: timedelta = timedelta(seconds=1)  #: from spawn to a process that runs
    settle: timedelta = timedelta()  #: so long may an instance still turn up whose spawn was never answered
    expands_volumes: bool = False  #: it is an ``ExpandsVolumes`` as well
    owns_all: bool = False  #: every instance it shows was started for this store
    asked_with: str = ""  #: another one once the key or the settings it asks its provider with have changed; not the key


@runtime_checkable
class ExpandsVolumes(Protocol):
    """What a spawner can do beside, if its traits say so."""

    async def expand_volume(self, volume: str, to_gb: int, seen_gb: float) -> int:
        """Make a volume so large, unless it is already, and answer with its size in GB. It never shrinks, nor grows twice for
        one size that is asked twice. Raises SpawnError, also if it is far smaller than what its workers see (``seen_gb``)."""
        ...


@runtime_checkable
class ListsPools(Protocol):
    """A spawner that can tell of which pools its provider has instances."""

    async def pools(self) -> Set[PoolId]:
        """Pools of which an instance is pending or running. Raises SpawnError."""
        ...


@runtime_checkable
class ForgetsRefusals(Protocol):
    """A spawner that remembers what its provider refused, and can be told to try all of it again."""

    def forget_refusals(self, pool_id: PoolId) -> None:
        """Ask for this pool as if nothing had been refused; what other pools of the account met with is forgotten too."""
        ...


class Spawner(Protocol):
    """Starts, lists and stops workers somewhere. An async context manager."""

    @property
    def traits(self) -> SpawnerTraits: ...

    async def spawn(self, order: Order) -> Instance:
        """Start a worker, or answer with the one that is running under that name already.

        Raises SpawnFailed when it is certain that nothing was started, SpawnAmbiguous when it is not.
        """
        ...

    async def list(self, pool_id: PoolId) -> Sequence[Instance]:
        """Every instance of the pool that is pending or running, and those that exited while this spawner watched; where it can
        know of them, also those that exited before and were not terminated since."""
        ...

    async def drain(self, pool_id: PoolId, worker_id: WorkerId) -> None:
        """Ask it to finish and leave (SIGTERM, or the provider's like). Harmless if it is gone."""
        ...

    async def terminate(self, pool_id: PoolId, worker_id: WorkerId) -> None:
        """End it now. Returns once it is gone; harmless if it was."""
        ...

    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
