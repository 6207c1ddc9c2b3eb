"""What was measured between two moments, over all workers of a run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class KindFigures:
    """One kind of operation. Latencies are of exact, merged histograms, in milliseconds; None: nothing was measured."""

    operations: int = 0
    errors: int = 0
    p50_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """All of it. Counts are operations that ended in the window; failed ones are among ``operations``."""

    since: datetime
    until: datetime
    operations: int = 0
    errors: int = 0
    qps: float = 0.0
    mean_ms: float | None = None  #: response time: from when an operation was due
    service_ms: float | None = None  #: the mean time an operation held its connection
    p50_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None
    slowest_p95_ms: float | None = None  #: the slowest worker's, as the seeds reckon
    slowest_p99_ms: float | None = None
    connections: float = 0.0  #: held on average, over all workers together
    kinds: Mapping[str, KindFigures] = field(default_factory=dict)
    workers: int = 0  #: how many measured anything
    waiting: float | None = None  #: sessions the server says wait, on average; None: it says nothing
    lock_waits: float | None = None  #: of those, the ones that wait for another transaction's lock; None: it does not tell
    client_limited: bool = False  #: the clients, not the database, were the limit

    @property
    def error_rate(self) -> float:
        """Errors as a share of operations."""
        return self.errors / self.operations if self.operations else 0.0
