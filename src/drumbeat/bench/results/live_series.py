"""Builds the time series of a run under way from samples and beats (passes of the control loop), which arrive in any order."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from math import floor
from typing import Any

from drumbeat.bench.model.record import DecisionRecord, FailureExample, Second, ServerSecond, without_repeats
from drumbeat.bench.model.watching import Curves, Point, RunSeries, ServerSnapshot
from drumbeat.bench.results.curves import MOST_POINTS, curves_of
from drumbeat.bench.results.record import decisions_of, signals_of
from drumbeat.bench.results.timeline import Timeline
from drumbeat.core.beat import Beat
from drumbeat.core.downsample import downsample
from drumbeat.core.run import Phase
from drumbeat.core.sample import StoredSample

MOST_DECISIONS = 500
_MAX_SAMPLE_DELAY = 3  #: seconds by which one worker's sample may arrive later than the others'
_SIGNALS = ("sessions", "active", "waiting", "lock_waits")


class LiveSeries:
    """The time series, decisions and server statistics of one run, as far as they have been read."""

    def __init__(self, origin: datetime, curves: Curves | None = None, failures: Sequence[FailureExample] = ()) -> None:
        """``curves`` and ``failures``: from the result of an ended run. If they are given, no samples need to be added."""
        self.origin = origin
        self._timeline = Timeline(origin)
        self._seconds: dict[int, Second] = {}
        self._stored_curves = curves
        self._failures = failures
        self._server: list[ServerSecond] = []
        self._waits: Counter[str] = Counter()
        self._decisions: list[DecisionRecord] = []
        self._drawn: Curves | None = curves
        self._drawn_of = (0, False)  #: seconds known when the curves were computed, and whether the run had ended
        self.reads = 0
        self.writes = 0

    @property
    def needs_samples(self) -> bool:
        return self._stored_curves is None

    @property
    def failed_connects(self) -> int:
        """How many attempts to connect failed during the measurement; before it has begun, since the start of the run."""
        measured = [second for second in self._seconds.values() if second.phase == Phase.MEASUREMENT]
        return sum(second.failed_connects for second in measured or self._seconds.values())

    @property
    def decisions(self) -> tuple[DecisionRecord, ...]:
        """The newest decisions of the run's orchestrator, in order of time."""
        return without_repeats(self._decisions)

    def add(self, samples: Iterable[StoredSample]) -> None:
        """Add new samples. Each sample must be added only once."""
        touched: set[int] = set()
        for sample in samples:
            self._timeline.add(without_kind_histograms(sample))
            self.reads += sample.reads
            self.writes += sample.writes
            ended = (sample.at - self.origin).total_seconds()
            touched.update(range(floor(ended - sample.interval.total_seconds()), floor(ended) + 1))
        for offset in touched:
            if offset >= 0:
                self._seconds[offset] = self._timeline.second(offset)

    def add_beats(self, beats: Iterable[Beat]) -> None:
        """Add what was recorded at new beats (passes of the control loop). Each beat must be added only once."""
        for beat in beats:
            self._decisions += decisions_of(beat, self.origin)
            for second in signals_of(beat, self.origin):
                self._server.append(second)
                self._waits.update(second.wait_events)
        self._decisions = sorted(self._decisions, key=lambda each: each.at)[-MOST_DECISIONS:]
        self._server.sort(key=lambda each: each.offset)

    def snapshot(self, *, complete: bool, ended: bool = False) -> RunSeries:
        """Return the curves, statistics, decisions and failures read so far. ``complete``: there is no more to read."""
        failures = self._failures if self._stored_curves else self._timeline.failures
        return RunSeries(
            curves=self._curves(ended=ended),
            server=self._server_snapshot(),
            decisions=self.decisions,
            failures=tuple(failures),
            complete=complete,
        )

    def _curves(self, *, ended: bool) -> Curves:
        """Return the curves up to a few seconds ago, as newer samples might be missing. They are computed again only when the
        run has ended or there is enough new data for another point of a chart."""
        if self._stored_curves is not None:
            return self._stored_curves
        drawn = self._range(0 if ended else _MAX_SAMPLE_DELAY)
        if self._drawn is None or self._has_grown(drawn, ended=ended):
            self._drawn = curves_of([self._seconds.get(offset) or Second(offset=offset) for offset in drawn])
            self._drawn_of = (len(self._seconds), ended)
        return self._drawn

    def _has_grown(self, drawn: range, *, ended: bool) -> bool:
        known, had_ended = self._drawn_of
        return ended != had_ended or len(self._seconds) - known >= max(1, len(drawn) / MOST_POINTS)

    def _range(self, without: int) -> range:
        return range(min(self._seconds, default=0), max(self._seconds, default=-1) + 1 - without)

    def _server_snapshot(self) -> ServerSnapshot:
        lines = {name: self._signal(name) for name in _SIGNALS}
        return ServerSnapshot(
            series={name: line for name, line in lines.items() if any(y is not None for _, y in line)},
            waits=dict(self._waits.most_common()),
        )

    def _signal(self, name: str) -> tuple[Point, ...]:
        points: list[Point] = [(round(each.offset, 1), getattr(each, name)) for each in self._server]
        return tuple(downsample(points, MOST_POINTS))


def without_kind_histograms(sample: StoredSample) -> StoredSample:
    """Return a sample without the histograms of each kind of operation, as curves show all kinds together."""
    kinds = sample.extra.get("kinds")
    if not isinstance(kinds, Mapping):
        return sample
    counts: dict[str, Any] = {
        kind: {"operations": block.get("operations", 0), "errors": block.get("errors", 0)}
        for kind, block in kinds.items()
        if isinstance(block, Mapping)
    }
    return replace(sample, extra={**sample.extra, "kinds": counts})
