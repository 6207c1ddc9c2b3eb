"""Reads only the figures per second, or only the errors, of a run from the store, without blocking the event loop."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta

from drumbeat.bench.model import ALL_KINDS, FailureExample, Measured, RunErrors, RunPlan, Second
from drumbeat.bench.results.availability import availability_of
from drumbeat.bench.results.live_series import without_kind_histograms
from drumbeat.bench.results.record import began, last_sample_at, record_of_results, samples_between, totals_of
from drumbeat.bench.results.timeline import Timeline, error_classes_of, failed_connects_of, kinds_of, note_failures, overlaps
from drumbeat.bench.results.yielding import iterate_yielding
from drumbeat.bench.run_state import stored_failures, whole_row
from drumbeat.core.pool import PoolId
from drumbeat.core.run import Phase, Result, Run, RunId
from drumbeat.core.sample import StoredSample
from drumbeat.store.interface import Store

_LONGEST = timedelta(seconds=10)  #: a sample may be dated up to this long after a second that it covers


async def read_seconds(
    store: Store, run_id: RunId, since: int = 0, until: int | None = None
) -> tuple[datetime | None, tuple[Second, ...]]:
    """Return when a run began, and its figures for each second from ``since`` up to, but not including, ``until`` (seconds
    after its start). Returns None and no seconds if the run never began."""
    run, now = await store.runs.get(run_id), await store.now()
    origin = began(run)
    if origin is None:
        return None, ()
    timeline, last = Timeline(origin), last_sample_at(run, now)
    if until is not None:
        last = min(last, origin + timedelta(seconds=until) + _LONGEST)
    async for _, rows in samples_between(store, PoolId(run_id), origin + timedelta(seconds=since), last):
        async for sample in iterate_yielding(rows):
            timeline.add(without_kind_histograms(sample))
    return origin, tuple([second async for second in iterate_yielding(timeline.each_second(since, until))])


async def read_errors(store: Store, run_id: RunId) -> RunErrors:
    """Count the errors of a run, with examples. Raises NotFound. The totals and examples of an ended run come from its
    result."""
    run, now = await store.runs.get(run_id), await store.now()
    results = await store.results.list(run_id)
    counted, origin = _Errors(), began(run)
    if origin is not None:
        async for _, rows in samples_between(store, PoolId(run_id), origin, last_sample_at(run, now), failed=True):
            async for sample in iterate_yielding(rows):
                counted.add(sample, origin)
    stored = availability_of(record_of_results(run, RunPlan(), results, ()))
    connects = stored.failed_connects if stored else None
    return counted.found(_measured(run, results), connects, stored_failures(whole_row(results)))


class _Errors:
    """Counts the errors in samples by kind of operation, error class and second, and makes a RunErrors from the counts."""

    def __init__(self) -> None:
        self._kinds: Counter[str] = Counter()
        self._classes: Counter[str] = Counter()
        self._seconds: defaultdict[int, float] = defaultdict(float)
        self._failed_connects = 0
        self._examples: list[FailureExample] = []

    def add(self, sample: StoredSample, origin: datetime) -> None:
        ended = (sample.at - origin).total_seconds()
        for offset, _, share in overlaps(ended - sample.interval.total_seconds(), ended):
            self._seconds[offset] += sample.errors * share
        if sample.phase == Phase.MEASUREMENT:
            self._failed_connects += failed_connects_of(sample)
        self._kinds.update({kind: int(block["errors"]) for kind, block in kinds_of(sample) if block.get("errors")})
        self._classes.update(error_classes_of(sample))
        note_failures(self._examples, sample)

    def found(self, measured: Measured, connects: int | None, stored: Sequence[FailureExample]) -> RunErrors:
        """Return the errors. ``measured``: the totals. ``connects``: the failed connects (None: those in the samples)."""
        return RunErrors(
            operations=measured.operations,
            errors=measured.errors,
            failed_connects=self._failed_connects if connects is None else connects,
            by_kind=dict(self._kinds),
            by_class=dict(self._classes),
            by_second={at: round(count) for at, count in sorted(self._seconds.items()) if at >= 0 and count >= 0.5},
            examples=tuple(stored or self._examples),
        )


def _measured(run: Run, results: Sequence[Result]) -> Measured:
    """Return the run's totals: from its stored results or, if its row counts more operations, from the row. During a run only
    the row is up to date."""
    totals = totals_of(results, ()).get(ALL_KINDS) or Measured()
    counted = Measured(operations=run.operations, errors=run.errors)
    return counted if counted.operations > totals.operations else totals
