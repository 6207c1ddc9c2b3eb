"""What a worker does between START and STOP: the interface and its data types."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol, runtime_checkable

from drumbeat.core.histogram import Histogram


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadFigures:
    """The current state of the work, reported with every heartbeat."""

    active: int = 0  #: in-flight operations or jobs
    applied_target: int = 0  #: the target in effect, after the workload's own limit and the ramp
    operations: int = 0  #: since MEASUREMENT or, before that, since the start
    errors: int = 0
    error: str | None = None  #: the last error


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Counts since the last measurement."""

    operations: int = 0
    reads: int = 0
    writes: int = 0
    errors: int = 0
    latency: Histogram = field(default_factory=Histogram)
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainResult:
    """The result of a drain."""

    timed_out: bool = False
    abandoned: int = 0  #: jobs or operations that were cut off


class Workload(Protocol):
    """The work of a worker, which calls it in this order: prepare, start, [everything else], drain, close.

    ``close`` is always called exactly once; ``drain`` only after ``start``, at most once. Long operations must await, never
    block: the heartbeat runs on the same event loop. An exception from ``prepare``, ``start``, ``ended`` or ``drain`` ends the
    worker: with exit code 1 for InvalidInput or NotFound from ``prepare``, with 4 for almost all others.
    """

    async def prepare(self) -> None:
        """Do everything that START must not wait for: read the configuration, open connections."""
        ...

    async def start(self, phase: str | None, target: int, qps: float | None = None) -> None:
        """Begin; returns as soon as the work is running."""
        ...

    def set_phase(self, phase: str) -> None:
        """Change to a phase. The totals restart at 0 when MEASUREMENT is first entered."""
        ...

    def set_target(self, connections: int, ramp: timedelta, qps: float | None = None) -> None:
        """Hold this many (never negative), in even steps over ``ramp``, or as many as the workload's own limit allows.

        With ``qps`` it issues that many operations per second, even if they are slow; a workload without operations ignores it.
        """
        ...

    def measure(self) -> Measurement | None:
        """Counts since the last call, each operation once; None when this workload counts nothing."""
        ...

    @property
    def figures(self) -> WorkloadFigures: ...

    async def ended(self) -> None:
        """Return once no work is left; raise the error if the work has become impossible. May be cancelled."""
        ...

    async def drain(self, within: timedelta) -> DrainResult:
        """Take nothing new and finish in-flight work. At the limit, abandon the rest and return."""
        ...

    async def close(self) -> None:
        """Release everything, even if half prepared or still running; upload what must be kept."""
        ...


@runtime_checkable
class Doubting(Protocol):
    """A workload that may learn of new instructions before its worker's next heartbeat."""

    def when_in_doubt(self, beat: Callable[[], None]) -> None:
        """Keep ``beat``, and call it to fetch new instructions at once."""
        ...
