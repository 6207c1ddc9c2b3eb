"""Samples of a workload: each interval cut out once, and kept until the store has it."""

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
class _Kept:
    sample: Sample
    taken: timedelta


class Sampling:
    """Cuts a workload's counts into samples. Beyond ``most_kept`` the oldest is dropped, and that is logged."""

    def __init__(self, workload: Workload, clock: Clock, most_kept: int = MOST_KEPT) -> None:
        self._workload = workload
        self._clock = clock
        self._kept: deque[_Kept] = deque()
        self._most_kept = most_kept
        self._since = timedelta()
        self._n = 0

    def begin(self) -> None:
        """The first interval begins now."""
        self._since = self._clock.elapsed()

    def take(self, phase: str | None, target: int, reading: Reading | None, extra: Mapping[str, Any] | None = None) -> None:
        """End an interval: keep what was counted in it."""
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
        self._keep(_Kept(sample, now))

    def _keep(self, kept: _Kept) -> None:
        if len(self._kept) >= self._most_kept:
            dropped = self._kept.popleft()
            log.warning("sample %d is dropped: %d wait for the store already", dropped.sample.n, self._most_kept)
        self._kept.append(kept)

    @property
    def newest(self) -> Sample | None:
        """The last one the store does not have yet, with its age by now."""
        return self._aged(self._kept[-1]) if self._kept else None

    @property
    def waiting(self) -> Sequence[Sample]:
        """All that the store does not have yet, oldest first."""
        return [self._aged(kept) for kept in self._kept]

    def sent(self, samples: Iterable[Sample]) -> None:
        """The store has these."""
        numbers = {sample.n for sample in samples}
        self._kept = deque(kept for kept in self._kept if kept.sample.n not in numbers)

    def _aged(self, kept: _Kept) -> Sample:
        return replace(kept.sample, age=self._clock.elapsed() - kept.taken)
