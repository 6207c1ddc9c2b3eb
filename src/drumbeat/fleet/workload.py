"""The metronome: a test workload for a fleet's workers that have no other work.

It runs ``target`` tickers, each due ten times a second, and measures how late each tick is. So its samples show how promptly
the machine schedules the worker's process, and a fleet can be watched, resized and tested before it has real work.
"""

import asyncio
from dataclasses import dataclass
from datetime import timedelta

from drumbeat.core.clock import Clock
from drumbeat.core.histogram import Histogram
from drumbeat.core.run import Phase
from drumbeat.runtime.worker import DrainResult, Measurement, WorkloadFigures

PERIOD = timedelta(milliseconds=100)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ramp:
    """A target that changes linearly from ``begin`` to ``end`` over a time."""

    begin: int
    end: int
    began: timedelta
    lasts: timedelta

    def at(self, moment: timedelta) -> int:
        passed = moment - self.began
        if passed >= self.lasts:
            return self.end
        return self.begin + int((self.end - self.begin) * (passed / self.lasts))


class Metronome:
    """A test workload of tickers: timers that fire ten times a second and only measure how late they fire."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ramp = _Ramp(begin=0, end=0, began=timedelta(), lasts=timedelta())
        self._latency = Histogram()
        self._counted = 0
        self._operations = 0
        self._measuring = False

    async def prepare(self) -> None:
        """Do nothing: this workload needs no preparation."""

    async def start(self, phase: str | None, target: int, qps: float | None = None) -> None:
        if phase is not None:
            self.set_phase(phase)
        self.set_target(target, timedelta())

    def set_phase(self, phase: str) -> None:
        if phase == Phase.MEASUREMENT and not self._measuring:
            self._measuring, self._operations = True, 0

    def set_target(self, connections: int, ramp: timedelta, qps: float | None = None) -> None:
        now = self._clock.elapsed()
        self._ramp = _Ramp(begin=self._ramp.at(now), end=connections, began=now, lasts=ramp)

    def measure(self) -> Measurement | None:
        measured = Measurement(operations=self._counted, latency=self._latency)
        self._latency, self._counted = Histogram(), 0
        return measured

    @property
    def figures(self) -> WorkloadFigures:
        held = self._ramp.at(self._clock.elapsed())
        return WorkloadFigures(active=held, applied_target=held, operations=self._operations)

    async def ended(self) -> None:
        """Run the tickers (timers that measure delay) until cancelled: this workload never ends by itself."""
        due = self._clock.elapsed()
        while True:
            due += PERIOD
            await self._clock.sleep(due - self._clock.elapsed())
            self._tick(due)
            await asyncio.sleep(0)

    def _tick(self, due: timedelta) -> None:
        now = self._clock.elapsed()
        late = (now - due) // _MICROSECOND * 1000
        held = self._ramp.at(now)
        self._latency.record_all([late] * held)
        self._counted += held
        self._operations += held

    async def drain(self, within: timedelta) -> DrainResult:
        """Stop all tickers (timers that measure how late they fire). They hold no work, so there is nothing to wait for."""
        self.set_target(0, timedelta())
        return DrainResult()

    async def close(self) -> None:
        """Do nothing: this workload has nothing to close."""
