"""The store as a whole, its upkeep, and how stores differ."""

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

Told = Callable[[int], object]  #: hears how many rows are gone so far


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreReport:
    """What ``drumbeat store check`` tells."""

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
        """Bring the schema up to date, and count finished jobs again; safe from several processes at once. Answers with the
        versions applied."""
        ...

    async def check(self) -> StoreReport:
        """Look at everything, change nothing."""
        ...

    async def prune_some(self, pool_id: PoolId, what: Prunable, older_than: timedelta) -> Pruned:
        """Delete some of what a pool has that is older than this, in one short transaction. To delete all of it, call again
        until there is no more, with pauses in between, in which others may write."""
        ...

    async def give_back(self) -> bool:
        """Give some of the space that deleted rows have left back to the file system, in one short step; True: there is more.
        Only a store of one file does; others use the space again."""
        ...

    async def prune(self, older_than: timedelta, told: Told | None = None) -> Mapping[str, int]:
        """Delete samples, logs, beats and ended workers older than this; events of ended runs too, and leases of an occasion (a
        trigger on its way, a webhook that came: a name with a slash) that ran out as long ago. Counts by table. Done in many
        short steps, with pauses between them; ``told`` hears after each how many rows are gone so far.

        A pool's own lease is never deleted: its epochs must not be used twice. Of a fleet's workers none is deleted whose
        instance is not known to be gone, or that counts for the running month: what was spent is summed from their rows.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreTraits:
    """How stores differ, declared."""

    name: str
    durable: bool  #: outlives its process
    shared: bool  #: other processes see it
    networked: bool  #: other machines can reach it
    keeps_runs: bool = True  #: and templates, connections and results: what benchmarks are made of


class Store(Protocol):
    """Everything above, behind one door. An async context manager: nothing of it outlives the block."""

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
