"""Measurements in a time window, over all workers of a run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class KindFigures:
    """Measurements of one kind of operation. Latencies come from merged histograms, in milliseconds; None: no data."""

    operations: int = 0
    errors: int = 0
    p50_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Measurements of all kinds. Counts operations that ended in the window; ``operations`` includes failed ones."""

    since: datetime
    until: datetime
    operations: int = 0
    errors: int = 0
    qps: float = 0.0
    mean_ms: float | None = None  #: mean response time, from when an operation was due
    service_ms: float | None = None  #: mean time for which an operation used its connection
    p50_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None
    slowest_p95_ms: float | None = None  #: of the slowest worker
    slowest_p99_ms: float | None = None
    connections: float = 0.0  #: held on average, in total over all workers
    kinds: Mapping[str, KindFigures] = field(default_factory=dict)
    workers: int = 0  #: how many workers have measurements
    waiting: float | None = None  #: waiting sessions in the server, on average; None: not reported
    lock_waits: float | None = None  #: of these, sessions that wait for another transaction's lock; None: not reported
    client_limited: bool = False  #: whether the clients, not the database, limited the load

    @property
    def error_rate(self) -> float:
        """Errors as a share of operations."""
        return self.errors / self.operations if self.operations else 0.0
