"""Takes a sample of a workload per interval, and keeps it until it is stored."""

import logging
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from drumbeat.core.clock import Clock
from drumbeat.core.sample import Sample
from drumbeat.runtime.probe import Reading
from drumbeat.runtime.workload import Workload

log = logging.getLogger(__name__)

MOST_KEPT = 600


@dataclass(frozen=True, slots=True)
class _PendingSample:
    sample: Sample
    taken: timedelta


class Sampling:
    """Turns a workload's counts into samples. If more than ``max_pending`` wait for the store, drops the oldest."""

    def __init__(self, workload: Workload, clock: Clock, max_pending: int = MOST_KEPT) -> None:
        self._workload = workload
        self._clock = clock
        self._pending: deque[_PendingSample] = deque()
        self._max_pending = max_pending
        self._since = timedelta()
        self._n = 0

    def begin(self) -> None:
        """Start the first sample interval now."""
        self._since = self._clock.elapsed()

    def take(self, phase: str | None, target: int, reading: Reading | None, extra: Mapping[str, Any] | None = None) -> None:
        """End the current interval and keep its counts as a sample."""
        now = self._clock.elapsed()
        interval, self._since = now - self._since, now
        measured = self._workload.measure()
        if measured is None or not (interval or measured.operations or measured.errors):
            return
        self._n += 1
        sample = Sample(
            n=self._n,
            interval=interval,
            phase=phase,
            operations=measured.operations,
            reads=measured.reads,
            writes=measured.writes,
            errors=measured.errors,
            latency=measured.latency,
            active=self._workload.figures.active,
            target=target,
            cpu_percent=reading.cpu_percent if reading else None,
            memory_percent=reading.memory_percent if reading else None,
            gpu=reading.gpu if reading else None,
            extra={**measured.extra, **(extra or {})},
        )
        self._keep(_PendingSample(sample, now))

    def _keep(self, pending: _PendingSample) -> None:
        if len(self._pending) >= self._max_pending:
            dropped = self._pending.popleft().sample.n
            log.warning("dropped sample %d of this worker: %d newer samples wait for the store", dropped, self._max_pending)
        self._pending.append(pending)

    @property
    def newest(self) -> Sample | None:
        """Return the newest sample that is not stored yet, with its current age."""
        return self._aged(self._pending[-1]) if self._pending else None

    @property
    def waiting(self) -> Sequence[Sample]:
        """Return all samples that are not stored yet, oldest first."""
        return [self._aged(pending) for pending in self._pending]

    def mark_sent(self, samples: Iterable[Sample]) -> None:
        """Remove samples that are stored now."""
        numbers = {sample.n for sample in samples}
        self._pending = deque(pending for pending in self._pending if pending.sample.n not in numbers)

    def _aged(self, pending: _PendingSample) -> Sample:
        return replace(pending.sample, age=self._clock.elapsed() - pending.taken)
