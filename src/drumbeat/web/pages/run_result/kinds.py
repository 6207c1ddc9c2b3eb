"""Results by kind of operation, and the latency histogram."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from nicegui import ui

from drumbeat.bench.model import Latency, LiveRun
from drumbeat.core.histogram import Histogram, bucket_bounds
from drumbeat.core.run import Result, error_rate
from drumbeat.web.pages.components import COLOURS, PageTable, TableColumn
from drumbeat.web.pages.run_live.charts import LiveChart, options
from drumbeat.web.pages.run_live.figures import number, percent as share

BARS = 60
_PERCENTS = (50.0, 90.0, 95.0, 99.0, 99.9)


def kinds_table(watched: LiveRun) -> None:
    """Show a table of results (all operations, then each kind) and a latency histogram. Only successes count for latencies."""
    rows = kind_rows(watched)
    ui.label("Results by operation kind").classes("text-h6").props("role=heading aria-level=2")
    if not rows:
        ui.label("No measurements").classes("faint")
        return
    table = PageTable("Results by operation kind", _COLUMNS, lambda row: row.result.kind or "all kinds")
    table.show(rows)
    LiveChart("Latency histogram (ms, logarithmic)", histogram_options(rows[0].result.latency), height=220)


@dataclass(frozen=True, slots=True)
class KindRow:
    """The result of one kind of operation, or of all kinds with the failed attempts to connect."""

    result: Result
    failed_connects: int

    @property
    def error_rate(self) -> float:
        return error_rate(self.result.operations, self.result.errors, self.failed_connects)


def kind_rows(watched: LiveRun) -> Sequence[KindRow]:
    """Return the results of the whole run: all operations, then each kind."""
    rows = (row for row in watched.results if row.worker_id is None and row.operations)
    return [KindRow(row, 0 if row.kind else watched.failed_connects) for row in rows]


def _latency(percent: float, row: KindRow) -> str:
    ns = row.result.latency.percentile_ns(percent)
    return number(None if ns is None else ns / 1e6)


def _mean(row: KindRow) -> str:
    mean = row.result.latency.mean
    return number(None if mean is None else mean.total_seconds() * 1000)


def _ms(nanoseconds: int | None) -> str:
    return number(None if nanoseconds is None else nanoseconds / 1e6)


_COLUMNS: list[TableColumn] = [
    TableColumn(name="kind", label="operation kind", read=lambda row: row.result.kind or "all kinds"),
    TableColumn(name="operations", read=lambda row: row.result.operations, number=True),
    TableColumn(name="ops", label="operations/s", read=lambda row: number(row.result.qps), number=True),
    TableColumn(name="errors", label="error rate", read=lambda row: share(row.error_rate), number=True),
    TableColumn(name="mean", label="mean (ms)", read=_mean, number=True),
    TableColumn(name="min", label="min (ms)", read=lambda row: _ms(row.result.latency.least), number=True),
    TableColumn(name="max", label="max (ms)", read=lambda row: _ms(row.result.latency.greatest), number=True),
    TableColumn(
        name="stddev", label="stddev (ms)", read=lambda row: number(Latency.of(row.result.latency).stddev_ms), number=True
    ),
    *(TableColumn(name=f"p{each:g}", label=f"p{each:g} (ms)", read=partial(_latency, each), number=True) for each in _PERCENTS),
]


def histogram_options(latency: Histogram) -> dict[str, Any]:
    """Return the options of a latency histogram, drawn as bars on a logarithmic scale."""
    drawn = options((), unit="operations", across="milliseconds (logarithmic)")
    bars = histogram_bars(latency)
    drawn["xAxis"] |= {"type": "category", "data": tuple(f"{low:.3g}" for low, _ in bars), "min": None, "max": None}
    drawn["tooltip"] = {"trigger": "axis"}
    drawn["series"] = [
        {"type": "bar", "name": "operations", "data": tuple(n for _, n in bars), "itemStyle": {"color": COLOURS[0]}}
    ]
    return drawn


def histogram_bars(latency: Histogram) -> Sequence[tuple[float, int]]:
    """Return the lower edge of each bar in milliseconds, and its number of operations."""
    if latency.least is None or latency.greatest is None:
        return []
    low, high = max(latency.least, 1) / 1e6, max(latency.greatest, 2) / 1e6 * 1.02
    ratio = (high / low) ** (1 / BARS)
    edges = [low * ratio**n for n in range(BARS + 1)]
    counts, place = [0] * BARS, 0
    for bucket, count in latency.buckets():
        middle = sum(bucket_bounds(bucket)) / 2e6
        while place < BARS - 1 and middle >= edges[place + 1]:
            place += 1
        counts[place] += count
    return list(zip(edges, counts, strict=False))
