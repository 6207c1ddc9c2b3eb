"""The figures that matter now, as tiles; and the objectives beside what was found."""

from nicegui import ui

from drumbeat.bench.model import ObjectiveStatus, Watched, told_apart
from drumbeat.web.pages.components import FigureTile, PageTable, TableColumn, tiles
from drumbeat.web.snapshot import aggregate_metrics

SIGNS = {"ok": "✓ ok", "near": "! near", "over": "✗ over", "under": "✗ under", "not measured": "? not measured"}
MEASURES = {"p95_ms": "p95", "p99_ms": "p99", "error_pct": "errors", "availability_pct": "availability"}


def number(value: float | None, digits: int = 3) -> str:
    """So many significant digits, never fewer than the whole part has."""
    if value is None:
        return "–"
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def ms(value: float | None) -> str:
    return "–" if value is None else f"{number(value)} ms"


def percent(share: float | None) -> str:
    return "–" if share is None else f"{number(share * 100)} %"


class FigureTiles:
    """Operations a second, latencies, errors, connections."""

    def __init__(self) -> None:
        names = ("operations/s", "p50", "p95", "p99", "errors", "operations", "connections")
        with tiles():
            self._tiles = {name: FigureTile(name) for name in names}

    def show(self, seen: Watched) -> None:
        found = aggregate_metrics(seen)
        self._tiles["operations/s"].show(number(found["qps"]))
        for name in ("p50", "p95", "p99"):
            self._tiles[name].show(ms(found[f"{name}_ms"]))
        self._tiles["errors"].show(f"{found['total_errors']:,} ({percent(found['error_rate'])})")
        self._tiles["operations"].show(found["total_ops"])
        most = f"{found['target_connections']} at most"
        now = f"{found['active_connections']} busy of {found['target_connections']}"
        self._tiles["connections"].show(most if seen.figures is None else now)


class Objectives:
    """The service levels a run shall keep; not there when it has none."""

    def __init__(self) -> None:
        self._card = ui.card().props("flat bordered").classes("w-full")
        with self._card:
            ui.label("Objectives").classes("text-h6").props("role=heading aria-level=2")
            self._table = PageTable("Objectives", _COLUMNS, lambda each: f"{each.kind} {each.measure}")
        self._card.set_visibility(False)

    def show(self, seen: Watched) -> None:
        self._card.set_visibility(bool(seen.objectives))
        self._table.show(seen.objectives)


def _limit_and_found(kept: ObjectiveStatus) -> tuple[str, str]:
    if kept.measure not in ("error_pct", "availability_pct"):
        return ms(kept.limit), ms(kept.found)
    if kept.found is None:
        return f"{number(kept.limit)} %", "–"
    limit, found = told_apart(kept.limit, kept.found)
    return f"{limit} %", f"{found} %"


_COLUMNS: list[TableColumn] = [
    TableColumn(name="kind", read=lambda each: each.kind or "all kinds"),
    TableColumn(name="objective", read=lambda each: MEASURES.get(each.measure, each.measure)),
    TableColumn(name="limit", read=lambda each: _limit_and_found(each)[0], number=True),
    TableColumn(name="found", read=lambda each: _limit_and_found(each)[1], number=True),
    TableColumn(name="verdict", read=lambda each: SIGNS.get(each.standing, each.standing)),
]
