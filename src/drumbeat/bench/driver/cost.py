"""Measures CPU time and delays of this process, to detect that the client, not the database, limits the throughput."""

import time
from dataclasses import dataclass
from datetime import timedelta

_MOST_LAG = timedelta(milliseconds=1)  #: open loop: an interval missed its schedule if operations were sent later than this
_BUSY = 0.9  #: if the driving thread is busy for this share of the time, it limits the load


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCost:
    """CPU cost and delays of this process in one interval."""

    cpu_us_per_operation: float | None
    busy: float | None  #: CPU time of the driving thread per second
    loop_lag_ms: float  #: the event loop's longest delay
    send_lag_p99_ms: float | None  #: open loop: how late operations were sent, 99th percentile
    backlog: int

    @property
    def kept_schedule(self) -> bool:
        late = self.send_lag_p99_ms is not None and self.send_lag_p99_ms > _MOST_LAG.total_seconds() * 1000
        return not late and self.backlog == 0

    @property
    def was_the_limit(self) -> bool:
        return self.busy is not None and self.busy >= _BUSY


class CpuMeter:
    """Measures the CPU time of this process and of one thread between two calls."""

    def __init__(self) -> None:
        self._marked = self._last = time.process_time()
        self._wall = time.monotonic()
        self._thread_time: float | None = None

    def mark(self) -> None:
        self._marked = time.process_time()

    def since_mark(self) -> float:
        return time.process_time() - self._marked

    def since_last(self, thread: int | None) -> tuple[float, float | None]:
        now, wall = time.process_time(), time.monotonic()
        used, self._last = now - self._last, now
        passed, self._wall = wall - self._wall, wall
        return used, self._busy(thread, passed)

    def _busy(self, thread: int | None, passed: float) -> float | None:
        if thread is None:
            return None
        now = time.clock_gettime(time.pthread_getcpuclockid(thread))
        before, self._thread_time = self._thread_time, now
        return None if before is None or not passed else (now - before) / passed
