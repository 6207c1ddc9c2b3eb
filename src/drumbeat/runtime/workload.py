"""The interface of a workload (what a worker does between START and STOP), and its data types."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol, runtime_checkable

from drumbeat.core.histogram import Histogram


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadFigures:
    """The current counts of the work, reported with every heartbeat."""

    active: int = 0  #: operations or jobs that are running now
    applied_target: int = 0  #: the target now in effect; a ramp or the workload's own limit may keep it below the set one
    operations: int = 0  #: since the phase MEASUREMENT began; before that, since the start
    errors: int = 0
    error: str | None = None  #: the last error


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Counts of operations since the last measurement."""

    operations: int = 0
    reads: int = 0
    writes: int = 0
    errors: int = 0
    latency: Histogram = field(default_factory=Histogram)
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainResult:
    """Whether the workload finished its work in time when it was drained."""

    timed_out: bool = False
    abandoned: int = 0  #: jobs or operations that were not finished


class Workload(Protocol):
    """The work of a worker. The worker calls prepare, start, then the other methods, then drain and close.

    ``close`` is always called exactly once; ``drain`` only after ``start``, at most once. Long operations must await, never
    block: the heartbeat runs on the same event loop. An exception from ``prepare``, ``start``, ``ended`` or ``drain`` ends the
    worker. The exit code for an error of ``prepare`` is 1 for InvalidInput, NotFound, MissingExtra, and 2 for StoreUnavailable;
    for all other errors it is 4. An earlier failure keeps its own exit code.
    """

    async def prepare(self) -> None:
        """Do everything that takes time before START: read the configuration, open connections."""
        ...

    async def start(self, phase: str | None, target: int, qps: float | None = None) -> None:
        """Begin the work; return as soon as it is running."""
        ...

    def set_phase(self, phase: str) -> None:
        """Change to another phase of the benchmark. The totals restart at 0 when the phase MEASUREMENT first begins."""
        ...

    def set_target(self, connections: int, ramp: timedelta, qps: float | None = None) -> None:
        """Change the number of connections or jobs, in even steps over ``ramp``, as far as the workload's own limit allows.

        With ``qps``, issue that many operations per second, even if they are slow; a workload without operations ignores it.
        """
        ...

    def measure(self) -> Measurement | None:
        """Return the counts since the last call; None if this workload counts nothing."""
        ...

    @property
    def figures(self) -> WorkloadFigures: ...

    async def ended(self) -> None:
        """Return when no work is left. Raises an error if the work has become impossible. The caller can cancel this call."""
        ...

    async def drain(self, within: timedelta) -> DrainResult:
        """Start no new work and finish running work. After ``within``, abandon unfinished work and return."""
        ...

    async def close(self) -> None:
        """Release all resources, even if half prepared or still running; upload files that must be kept."""
        ...


@runtime_checkable
class WakesHeartbeat(Protocol):
    """A workload that can notice new instructions for its worker earlier than the next heartbeat does."""

    def on_possible_instructions(self, beat: Callable[[], None]) -> None:
        """Set the function that the workload calls when there might be new instructions: ``beat`` sends a heartbeat at once."""
        ...


@runtime_checkable
class DescribesWorker(Protocol):
    """A workload that adds facts to its worker's row, such as which types of jobs the worker runs."""

    @property
    def worker_meta(self) -> Mapping[str, Any]:
        """The fields to add to ``meta`` of the worker's row when the worker has prepared its work."""
        ...
