"""The store with all its tables, its maintenance, and how stores differ."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import TracebackType
from typing import Protocol, Self

from drumbeat.core.pool import PoolId
from drumbeat.core.retention import Prunable, Pruned
from drumbeat.store.interface.access import Answers, Connections, Notes
from drumbeat.store.interface.bench import Executions, Results, Runs, Steps, Templates
from drumbeat.store.interface.control import Events, Leases, Membership, Pools, Workers
from drumbeat.store.interface.jobs import Jobs, Queue
from drumbeat.store.interface.record import Beats, Logs, Samples

Told = Callable[[int], object]  #: called with the number of rows deleted so far


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreReport:
    """The result of ``drumbeat store check``."""

    backend: str
    location: str  #: without secrets
    schema_version: int
    latest_version: int
    server: str
    now: datetime
    rows: Mapping[str, int]
    problems: Sequence[str]


class Upkeep(Protocol):
    """Schema and housekeeping."""

    async def migrate(self) -> Sequence[int]:
        """Bring the schema up to date and recount finished jobs; safe from several processes at once. Returns the versions
        applied."""
        ...

    async def check(self) -> StoreReport:
        """Inspect the whole store without changing it."""
        ...

    async def prune_some(self, pool_id: PoolId, what: Prunable, older_than: timedelta) -> Pruned:
        """Delete some of a pool's rows of one kind that are older than this, in one short transaction. To delete all of them,
        repeat until there are no more, with pauses in which other processes may write."""
        ...

    async def give_back(self) -> bool:
        """Return some free space to the file system, in one short step; True if there is more. Only a store in one file does
        this; the others reuse the space."""
        ...

    async def prune(self, older_than: timedelta, told: Told | None = None) -> Mapping[str, int]:
        """Delete samples, logs, beats and ended workers older than this, events of ended runs, and one-time leases (a trigger
        that fired, a webhook that arrived: names with a slash) that expired that long ago. Returns the counts by table. Works
        in many short steps with pauses; ``told`` is called after each with the number of rows deleted so far.

        A pool's lease is never deleted, since its epochs must not be used twice. A fleet's worker is not deleted before it is
        reaped, nor while it counts for the current month, since the costs are summed from these rows.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreTraits:
    """How stores differ."""

    name: str
    durable: bool  #: survives the end of the process
    shared: bool  #: other processes can use it
    networked: bool  #: other machines can reach it
    keeps_runs: bool = True  #: has runs, templates, connections and results, which benchmarks need


class Store(Protocol):
    """All tables of a store. An async context manager: leaving the block closes everything."""

    @property
    def traits(self) -> StoreTraits: ...
    @property
    def pools(self) -> Pools: ...
    @property
    def workers(self) -> Workers: ...
    @property
    def membership(self) -> Membership: ...
    @property
    def events(self) -> Events: ...
    @property
    def leases(self) -> Leases: ...
    @property
    def beats(self) -> Beats: ...
    @property
    def samples(self) -> Samples: ...
    @property
    def runs(self) -> Runs: ...
    @property
    def results(self) -> Results: ...
    @property
    def steps(self) -> Steps: ...
    @property
    def executions(self) -> Executions: ...
    @property
    def templates(self) -> Templates: ...
    @property
    def queue(self) -> Queue: ...
    @property
    def jobs(self) -> Jobs: ...
    @property
    def connections(self) -> Connections: ...
    @property
    def answers(self) -> Answers: ...
    @property
    def notes(self) -> Notes: ...
    @property
    def logs(self) -> Logs: ...
    @property
    def upkeep(self) -> Upkeep: ...

    async def now(self) -> datetime:
        """The store's clock."""
        ...

    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
