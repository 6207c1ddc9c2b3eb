"""The interface of a whole store: its tables, its maintenance, and the traits in which stores differ."""

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
from drumbeat.store.interface.job_steps import JobSteps
from drumbeat.store.interface.jobs import Jobs, Queue
from drumbeat.store.interface.record import Beats, Logs, Samples

ProgressCallback = Callable[[int], object]  #: a progress callback, called with the number of rows deleted so far


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreReport:
    """The result of ``drumbeat store check``: location, versions, row counts and problems."""

    backend: str
    location: str  #: without secrets
    schema_version: int
    latest_version: int
    server: str
    now: datetime
    rows: Mapping[str, int]
    problems: Sequence[str]
    limits: Sequence[str] = ()  #: what this kind of store does slowly, does not enforce, or charges for


class Upkeep(Protocol):
    """Maintenance of a store: migration, checks and pruning."""

    async def migrate(self) -> Sequence[int]:
        """Apply missing migrations and return their numbers. Safe from several processes at once.

        A SQL store also recounts its ended jobs, and updates jobs that still wait for a job that has ended: processes of an
        older Drumbeat, which may still run, end jobs without counting them and without updating the jobs that wait for them.
        """
        ...

    async def check(self) -> StoreReport:
        """Inspect the whole store without changing it."""
        ...

    async def prune_some(self, pool_id: PoolId, what: Prunable, older_than: timedelta) -> Pruned:
        """Delete some of a pool's rows of one kind (``what``) that are older than ``older_than``, in one short transaction. To
        delete all of them, repeat while the result says ``more``, with pauses in which other processes can write."""
        ...

    async def prune_leases(self, older_than: timedelta, limit: int = 1000) -> Pruned:
        """Delete some of the one-time leases that expired longer than ``older_than`` ago, in one short transaction; see
        ``prune``. A lease that was acquired again meanwhile stays."""
        ...

    async def give_back(self) -> bool:
        """Give some free disk space back to the file system, in one short step. Returns True if another step could free more.
        Only a store in one file (SQLite) does this; other stores reuse the space."""
        ...

    async def prune(self, older_than: timedelta, on_progress: ProgressCallback | None = None) -> Mapping[str, int]:
        """Delete samples, logs, beats, ended workers, events of ended runs, and expired one-time leases that are older
        than ``older_than``. (A one-time lease has a slash in its name and marks one event, such as a webhook that arrived.)
        Returns the number of rows by table. Works in many short steps; after each, ``on_progress`` is called with the
        number so far.

        A pool's lease is never deleted, since its epochs must not be used twice. A worker of a fleet is deleted only after it
        was reaped and no longer counts for the current month, since costs are summed from these rows.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreTraits:
    """The properties in which kinds of stores differ, such as whether other machines can reach the store."""

    name: str
    shared: bool  #: other processes can use it
    networked: bool  #: other machines can reach it
    keeps_runs: bool = True  #: has runs, templates, connections and results, which benchmarks need
    shortest_beat: timedelta = timedelta()  #: workers' heartbeats and controllers' beats come no more often than this
    limits: tuple[str, ...] = ()  #: what the store does slowly, does not enforce, or charges for; one sentence each


class Store(Protocol):
    """A store with all its tables. Use it with ``async with``: leaving the block closes everything."""

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
    def job_steps(self) -> JobSteps: ...
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
        """Return the current time by the store's clock."""
        ...

    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
