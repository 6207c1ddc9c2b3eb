"""Charts that show the measurements of several runs together."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from nicegui import ui

from drumbeat.bench.model import Curves, Point, RunRecord
from drumbeat.core.run import Phase
from drumbeat.web.app_state import AppState
from drumbeat.web.pages.run_live.charts import ChartLine, LiveChart, options

if TYPE_CHECKING:
    from drumbeat.composition.plane import Comparison

CHARTS: Mapping[str, tuple[str, str]] = {
    "Throughput": ("qps", "operations/s"),
    "p95 latency": ("p95_ms", "ms"),
    "p99 latency": ("p99_ms", "ms"),
    "Errors": ("errors", "errors/s"),
}


def overlays(app: AppState, found: "Sequence[Comparison]") -> None:
    """Draw each metric of all runs in one chart; time starts at the beginning of each run's measurement."""
    records = [found[0].before, *(each.after for each in found)]
    lines = {title(record): app.plane.bench().curves(record.timeline) for record in records}
    with ui.element("div").classes("chart-grid w-full"):
        for name, (key, unit) in CHARTS.items():
            drawn = [ChartLine(name=run, points=measured(curves, key)) for run, curves in lines.items()]
            LiveChart(name, options(drawn, unit=unit))


def title(record: RunRecord) -> str:
    return f"{record.run.name or 'run'} ({record.run.run_id})"


def measured(curves: Curves, key: str) -> list[Point]:
    """Return the points of a run's curve that lie in its measurement phase (without warmup and cooldown)."""
    stretches = [each for each in curves.phases if each.name == Phase.MEASUREMENT]
    if not stretches:
        return []
    began, ended = stretches[0].began, stretches[-1].ended
    return [(x - began, y) for x, y in curves.series.get(key, ()) if began <= x <= ended]
