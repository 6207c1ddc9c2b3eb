"""What a worker does between START and STOP: the interface, and the values it speaks in."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol, runtime_checkable

from drumbeat.core.histogram import Histogram


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadFigures:
    """How the work stands. Told with every heartbeat."""

    active: int = 0  #: how much it holds now: running operations, claimed jobs
    applied_target: int = 0  #: what it made of its target, after its own cap and along its ramp
    operations: int = 0  #: since MEASUREMENT began, or else since the start
    errors: int = 0
    error: str | None = None  #: the last one


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What was counted since it was last asked."""

    operations: int = 0
    reads: int = 0
    writes: int = 0
    errors: int = 0
    latency: Histogram = field(default_factory=Histogram)
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainResult:
    """How a drain came out."""

    timed_out: bool = False
    abandoned: int = 0  #: how much was cut off


class Workload(Protocol):
    """The work itself. Its worker calls it in this order: prepare, start, [everything else], drain, close.

    ``close`` is always called, once, wherever it ended; ``drain`` only after ``start``, at most once. What may take long must
    await, never block: the heartbeat lives on the same loop. An exception from ``prepare``, ``start``, ``ended`` or ``drain``
    is the end of the worker: exit code 1 for an InvalidInput or NotFound from ``prepare``, 4 for almost all others.
    """

    async def prepare(self) -> None:
        """Get everything ready that START must not wait for: read the configuration, open connections."""
        ...

    async def start(self, phase: str | None, target: int, qps: float | None = None) -> None:
        """Begin; returns as soon as the work is going."""
        ...

    def set_phase(self, phase: str) -> None:
        """Go over to a phase. Its totals begin anew at the first entry to MEASUREMENT, whatever came before."""
        ...

    def set_target(self, connections: int, ramp: timedelta, qps: float | None = None) -> None:
        """Hold this many (never negative), in even steps over ``ramp``. Beyond its own cap it holds its cap, and says so.

        With ``qps`` it issues that many operations a second, whatever becomes of them; a work without operations ignores it.
        """
        ...

    def measure(self) -> Measurement | None:
        """What was counted since the last call, each operation once; None when this work counts nothing."""
        ...

    @property
    def figures(self) -> WorkloadFigures: ...

    async def ended(self) -> None:
        """Return once there is nothing left to do; raise what made the work impossible. May be cancelled."""
        ...

    async def drain(self, within: timedelta) -> DrainResult:
        """Take nothing new, finish what is held. At the limit, abandon the rest and return."""
        ...

    async def close(self) -> None:
        """Let go of everything, also of what is half prepared or still running; upload what must be kept."""
        ...


@runtime_checkable
class Doubting(Protocol):
    """A work that may notice, before its worker's next heartbeat, that there are orders for it."""

    def when_in_doubt(self, beat: Callable[[], None]) -> None:
        """Call ``beat`` to have the orders brought at once."""
        ...
