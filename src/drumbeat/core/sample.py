"""A sample: what one worker measured in one interval."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from drumbeat.core.histogram import Histogram
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What a worker counted in one interval, not in total. ``n`` numbers a worker's samples, so that none is stored twice."""

    n: int
    interval: timedelta
    age: timedelta = timedelta()  #: time between the end of the interval and storing the sample
    phase: str | None = None
    operations: int = 0
    reads: int = 0
    writes: int = 0
    errors: int = 0
    latency: Histogram = field(default_factory=Histogram)
    active: int = 0
    target: int = 0
    cpu_percent: float | None = None
    memory_percent: float | None = None
    gpu: Mapping[str, Any] | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def qps(self) -> float:
        """Operations per second over the interval."""
        seconds = self.interval.total_seconds()
        return self.operations / seconds if seconds else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSample(Sample):
    """A stored sample (what a worker measured in one interval): one row of ``samples``."""

    pool_id: PoolId
    worker_id: WorkerId
    at: datetime  #: when the interval ended, on the store's clock
