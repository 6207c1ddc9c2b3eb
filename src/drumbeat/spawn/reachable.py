"""Lists of instances where a part of the provider does not answer: a host of an SSH engine, or one engine of several."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol, runtime_checkable

from drumbeat.core.errors import SpawnCause, SpawnError, Unanswered
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import Worker, WorkerId, WorkerStatus
from drumbeat.spawn.interface import Instance, Spawner


@dataclass(frozen=True, slots=True, kw_only=True)
class SilentPlace:
    """A host or an engine that does not answer, so that workers may run there unseen."""

    name: str
    error: SpawnError
    may_hold: Callable[[Worker], bool]  #: whether the worker with this row may be there
    is_down: bool = False  #: whether the workers' machine itself cannot be reached, not only a service that lists workers

    def may_run(self, row: Worker) -> bool:
        """Whether an instance of this worker may run here. It must then not count as ended.

        Not an instance of a worker that left by itself, or whose start was refused. A lost worker sends no heartbeats; if
        its machine does not answer either, it counts as ended, so that another worker can take its place.
        """
        if row.reaped_at is not None or row.meta.get("spawn_failed") or not self.may_hold(row):
            return False
        if row.status is WorkerStatus.LOST:
            return not self.is_down
        return row.is_live or bool(row.meta.get("drain_timed_out"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachableList:
    """The instances at the places that answer, and the places that do not."""

    instances: Sequence[Instance]
    silent: Sequence[SilentPlace] = ()
    is_answered: bool = True  #: whether some place has answered, or none that does not can hold an instance of the pool

    @property
    def problem(self) -> str:
        """Say which places do not answer, and why."""
        return "; ".join(str(place.error) for place in self.silent)

    def hidden(self, rows: Sequence[Worker]) -> Sequence[WorkerId]:
        """Return the workers that are not listed but may run at a silent place."""
        listed = {one.worker_id for one in self.instances}
        missing = [row for row in rows if row.worker_id not in listed] if self.silent else []
        return [row.worker_id for row in missing if any(place.may_run(row) for place in self.silent)]

    def may_hold(self, row: Worker) -> Sequence[SilentPlace]:
        """Return the silent places where the worker may be."""
        return [place for place in self.silent if place.may_hold(row)]


@runtime_checkable
class ListsReachable(Protocol):
    """A spawner whose provider has several places, each of which may fail to answer."""

    async def list_reachable(self, pool_id: PoolId | None) -> ReachableList:
        """Return the instances of a pool, or of all pools, at the places that answer, and the places that do not."""
        ...


async def list_reachable(spawner: Spawner, pool_id: PoolId) -> ReachableList:
    """Return the instances of a pool at the places that answer. Raises Unanswered if none does, SpawnError."""
    if not isinstance(spawner, ListsReachable):
        return ReachableList(instances=await spawner.list(pool_id))
    found = await spawner.list_reachable(pool_id)
    if not found.is_answered:
        raise Unanswered(found.problem, cause=found.silent[0].error.cause)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class HostReport:
    """What a check of one host has found. ``problem`` is one line; None if workers can run there."""

    name: str
    problem: str | None = None
    cause: SpawnCause | None = None
    python: str | None = None
    drumbeat: str | None = None  #: the version that the workers' Python imports
    clock_offset: timedelta | None = None  #: how far the host's clock is ahead of this one's
    slots: int = 0
    taken: int = 0
    is_chosen: bool = True  #: whether new workers may go there, as far as its labels tell


@runtime_checkable
class ChecksHosts(Protocol):
    """A spawner that runs workers on several hosts, which can be checked one by one."""

    async def check_hosts(self) -> Sequence[HostReport]:
        """Ask each host whether workers can run there."""
        ...

    def at_host(self, name: str) -> Spawner:
        """Return a spawner for one of the hosts only. Raises InvalidSettings for an unknown name."""
        ...
