"""Measurements of a run in a period of time, over all its workers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from drumbeat.core.run import error_rate


@dataclass(frozen=True, slots=True, kw_only=True)
class KindFigures:
    """Measurements of one kind of operation over all workers. Latencies are in milliseconds; None: no data."""

    operations: int = 0
    errors: int = 0
    p50_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None

    @property
    def error_rate(self) -> float:
        return error_rate(self.operations, self.errors)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Measurements of all operations that ended from ``since`` to ``until``; ``operations`` includes failed ones."""

    since: datetime
    until: datetime
    operations: int = 0
    errors: int = 0
    failed_connects: int = 0
    qps: float = 0.0
    mean_ms: float | None = None  #: mean response time, from the moment at which an operation should have started
    service_ms: float | None = None  #: mean time for which an operation used its connection
    p50_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None
    slowest_p95_ms: float | None = None  #: the p95 of the worker with the highest one
    slowest_p99_ms: float | None = None
    connections: float = 0.0  #: average number of open connections of all workers together
    kinds: Mapping[str, KindFigures] = field(default_factory=dict)
    workers: int = 0  #: how many workers have measurements
    waiting: float | None = None  #: database sessions that wait, on average; None: not reported
    lock_waits: float | None = None  #: database sessions that wait for a lock of another transaction, on average
    client_limited: bool = False  #: whether the clients, not the database, limited the load

    @property
    def error_rate(self) -> float:
        return error_rate(self.operations, self.errors, self.failed_connects)
