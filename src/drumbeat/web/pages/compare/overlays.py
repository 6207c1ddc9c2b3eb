"""Several runs' measurements in one picture."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from nicegui import ui

from drumbeat.bench.model import Curves, Point, RunRecord
from drumbeat.core.run import Phase
from drumbeat.web.app_state import AppState
from drumbeat.web.pages.run_live.charts import ChartLine, LiveChart, options

if TYPE_CHECKING:
    from drumbeat.composition.plane import Comparison

PICTURES: Mapping[str, tuple[str, str]] = {
    "Throughput": ("qps", "operations/s"),
    "p95": ("p95_ms", "ms"),
    "p99": ("p99_ms", "ms"),
    "Errors": ("errors", "errors/s"),
}


def overlays(house: AppState, found: "Sequence[Comparison]") -> None:
    """Time is counted from where each measurement began."""
    records = [found[0].before, *(each.after for each in found)]
    lines = {title(record): house.plane.bench().curves(record) for record in records}
    with ui.element("div").classes("chart-grid w-full"):
        for name, (key, unit) in PICTURES.items():
            drawn = [ChartLine(name=run, points=measured(curves, key)) for run, curves in lines.items()]
            LiveChart(name, options(drawn, unit=unit))


def title(record: RunRecord) -> str:
    return f"{record.run.name or 'run'} ({record.run.run_id})"


def measured(curves: Curves, key: str) -> list[Point]:
    """The points of the measurement alone."""
    stretches = [each for each in curves.phases if each.name == Phase.MEASUREMENT]
    if not stretches:
        return []
    began, ended = stretches[0].began, stretches[-1].ended
    return [(x - began, y) for x, y in curves.series.get(key, ()) if began <= x <= ended]
