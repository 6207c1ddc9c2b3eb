"""Shows how the figures of comparable runs develop over time: values of each run, median, variation and trend."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from drumbeat.bench.model import LoadMode, RunJudgement, RunRecord, RunVerdict, best_of
from drumbeat.bench.results.compare import History, history
from drumbeat.bench.results.earlier_runs import earlier_runs
from drumbeat.bench.results.record import judgement_of_ended, read_short_record
from drumbeat.core.run import Run, RunId
from drumbeat.store.interface import Store

MOST_RUNS = 20
WITHIN = timedelta(days=90)
_LEFT_OUT = frozenset({RunVerdict.FAILED, RunVerdict.CANCELLED, RunVerdict.PENDING})

Figure = Callable[[RunRecord], float | None]
_MEASURED: Mapping[str, Figure] = {
    "operations/s": lambda record: record.whole.qps or None,
    "p50 (ms)": lambda record: record.whole.latency.p50_ms,
    "p95 (ms)": lambda record: record.whole.latency.p95_ms,
    "p99 (ms)": lambda record: record.whole.latency.p99_ms,
    "errors (%)": lambda record: record.whole.error_rate * 100 if record.whole.operations else None,
}
_FOUND: Mapping[str, Figure] = {
    "best connections": lambda record: best.connections if (best := best_of(record)) else None,
    "operations/s": lambda record: best.qps if (best := best_of(record)) else None,
    "p95 (ms)": lambda record: best.step.p95_ms if (best := best_of(record)) and best.step else None,
    "p99 (ms)": lambda record: best.step.p99_ms if (best := best_of(record)) and best.step else None,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendPoint:
    """One run in a trend, with its verdict and its figures."""

    run: Run
    judgement: RunJudgement
    figures: Mapping[str, float | None]

    @property
    def has_figures(self) -> bool:
        return any(value is not None for value in self.figures.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """Comparable runs, oldest first, and the history of each figure over them."""

    points: tuple[TrendPoint, ...]
    histories: Mapping[str, History]  #: by name of the figure; only figures that at least one run has


async def read_trend(store: Store, run_id: RunId, most: int = MOST_RUNS) -> Trend:
    """Read the figures of a run and of earlier comparable runs, at most ``most`` in all. Leaves out failed runs.

    Raises NotFound."""
    run = await store.runs.get(run_id)
    points = [await _point(store, each) for each in await _comparable_runs(store, run, most)]
    shown = tuple(point for point in points if point.has_figures and point.judgement.verdict not in _LEFT_OUT)
    return Trend(points=shown, histories=histories_of(shown))


async def _comparable_runs(store: Store, run: Run, most: int) -> list[Run]:
    """List the completed comparable runs before ``run``, oldest first, then ``run`` itself."""
    found = [run]
    async for other in earlier_runs(store, run, WITHIN):
        if len(found) >= most:
            break
        found.append(other)
    return found[::-1]


async def _point(store: Store, run: Run) -> TrendPoint:
    record = await read_short_record(store, run)
    figures = _FOUND if record.plan.load_mode is LoadMode.FIND_MAX_CONCURRENCY else _MEASURED
    values = {name: of(record) for name, of in figures.items()}
    return TrendPoint(run=run, judgement=await judgement_of_ended(store, run), figures=values)


def histories_of(points: Sequence[TrendPoint]) -> dict[str, History]:
    """Summarise the history of each figure over these runs: median, variation and trend. Pure."""
    names = dict.fromkeys(name for point in points for name in point.figures)
    known = {name: [value for point in points if (value := point.figures.get(name)) is not None] for name in names}
    return {name: found for name, values in known.items() if (found := history(values)) is not None}
