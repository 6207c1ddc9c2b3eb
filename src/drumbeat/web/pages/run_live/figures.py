"""Tiles with current metrics, and the table of objectives with their measured values."""

from collections.abc import Mapping
from typing import Any

from nicegui import ui

from drumbeat.bench.model import LiveRun, ObjectiveStatus, and_failed_connects, texts_that_differ
from drumbeat.web.pages.components import FigureTile, PageTable, TableColumn, tiles
from drumbeat.web.snapshot import aggregate_metrics

SIGNS = {"ok": "✓ ok", "near": "! near the limit", "over": "✗ over", "under": "✗ under", "not measured": "? not measured"}
MEASURES = {"p95_ms": "p95", "p99_ms": "p99", "error_pct": "error rate", "availability_pct": "availability"}


def number(value: float | None, digits: int = 3) -> str:
    """Return a number with ``digits`` significant digits, or more if its integer part is longer; – for None."""
    if value is None:
        return "–"
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def ms(value: float | None) -> str:
    return "–" if value is None else f"{number(value)} ms"


def percent(share: float | None) -> str:
    return "–" if share is None else f"{number(share * 100)} %"


def errors_text(found: Mapping[str, Any]) -> str:
    """Return the errors in a run's aggregated metrics: their count, failed connects, and the share of both."""
    return f"{found['total_errors']:,}{and_failed_connects(found['failed_connects'])} ({percent(found['error_rate'])})"


class FigureTiles:
    """Tiles with throughput, latencies, errors and connections of a run."""

    def __init__(self) -> None:
        names = ("Operations/s", "p50", "p95", "p99", "Errors", "Operations", "Connections")
        with tiles():
            self._tiles = {name: FigureTile(name) for name in names}

    def show(self, watched: LiveRun) -> None:
        found = aggregate_metrics(watched)
        self._tiles["Operations/s"].show(number(found["qps"]))
        for name in ("p50", "p95", "p99"):
            self._tiles[name].show(ms(found[f"{name}_ms"]))
        self._tiles["Errors"].show(errors_text(found))
        self._tiles["Operations"].show(found["total_ops"])
        target = found["target_connections"]
        now = f"{found['active_connections']} busy of {target}"
        self._tiles["Connections"].show(f"max {target}" if watched.figures is None else now)


class Objectives:
    """The service level objectives of a run; hidden if it has none."""

    def __init__(self) -> None:
        self._card = ui.card().props("flat bordered").classes("w-full")
        with self._card:
            ui.label("Objectives (SLO)").classes("text-h6").props("role=heading aria-level=2")
            self._table = PageTable("Objectives (SLO)", _COLUMNS, lambda each: f"{each.kind} {each.measure}")
        self._card.set_visibility(False)

    def show(self, watched: LiveRun) -> None:
        self._card.set_visibility(bool(watched.objectives))
        self._table.show(watched.objectives)


def _limit_and_found(status: ObjectiveStatus) -> tuple[str, str]:
    if status.measure not in ("error_pct", "availability_pct"):
        return ms(status.limit), ms(status.found)
    if status.found is None:
        return f"{number(status.limit)} %", "–"
    limit, found = texts_that_differ(status.limit, status.found)
    return f"{limit} %", f"{found} %"


_COLUMNS: list[TableColumn] = [
    TableColumn(name="kind", label="operation kind", read=lambda each: each.kind or "all kinds"),
    TableColumn(name="objective", read=lambda each: MEASURES.get(each.measure, each.measure)),
    TableColumn(name="limit", read=lambda each: _limit_and_found(each)[0], number=True),
    TableColumn(name="measured", read=lambda each: _limit_and_found(each)[1], number=True),
    TableColumn(name="verdict", read=lambda each: SIGNS.get(each.standing, each.standing)),
]
