"""What every spawner promises: ask twice and it is asked once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from types import TracebackType
from typing import Any, Protocol, Self

from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId


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
class Traits:
    """How spawners differ, declared."""

    name: str
    unique_names: bool  #: the provider itself refuses a second instance of one name
    outlives_controller: bool  #: instances go on when the spawner's process ends
    reports_exit_codes: bool
    price_per_hour: float = 0.0  #: the most that one may cost; what it does cost is told by its instance
    billing_granule: timedelta = timedelta(seconds=1)
    usual_start: timedelta = timedelta(seconds=1)  #: from spawn to a process that runs
    settle: timedelta = timedelta()  #: so long may an instance still turn up whose spawn was never answered


class Spawner(Protocol):
    """Starts, lists and stops workers somewhere. An async context manager."""

    @property
    def traits(self) -> Traits: ...

    async def spawn(self, order: Order) -> Instance:
        """Start a worker, or answer with the one that is running under that name already.

        Raises SpawnFailed when it is certain that nothing was started, SpawnAmbiguous when it is not.
        """
        ...

    async def list(self, pool_id: PoolId) -> Sequence[Instance]:
        """Every instance of the pool that is pending or running, and those that exited while this spawner watched."""
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
