"""Statistics of the database under test: sessions, wait events, and increases of its counters."""

from collections.abc import Mapping
from typing import Any

from nicegui import ui

from drumbeat.bench.model import ServerSnapshot
from drumbeat.core.run import Result
from drumbeat.web.pages.components import PageTable, TableColumn
from drumbeat.web.pages.run_live.charts import ChartLine, LiveChart, options
from drumbeat.web.pages.run_live.figures import number

_MAX_WAITS = 12
_PARTS = {"measurement": "during measurement", "warmup": "during warmup"}
_COUNTERS = "Increase of database counters"
_WAITS: list[TableColumn] = [
    TableColumn(name="event", label="wait event", read=lambda each: each[0]),
    TableColumn(name="times", label="samples", read=lambda each: each[1], number=True),
]


class Server:
    """Shows the statistics of the database under test; hidden if there are none."""

    def __init__(self, total: Result | None) -> None:
        self._shown: ServerSnapshot | None = None
        self._place = ui.column().classes("w-full")
        with self._place:
            ui.label("Database statistics").classes("text-h6").props("role=heading aria-level=2")
            self._chart = LiveChart("Database sessions")
            self._waits = PageTable("Wait events", _WAITS, lambda each: each[0])
            self._totals = _totals(total)
        self._place.set_visibility(self._totals)

    def show(self, server: ServerSnapshot) -> None:
        if server == self._shown:
            return
        self._shown = server
        self._place.set_visibility(self._totals or bool(server.series))
        lines = [ChartLine(name=name.replace("_", " "), points=points) for name, points in server.series.items()]
        self._chart.show(options(lines, unit="sessions"))
        self._waits.element.set_visibility(bool(server.waits))
        self._waits.show(list(server.waits.items())[:_MAX_WAITS])


def _totals(total: Result | None) -> bool:
    """Show how much the database's counters increased, if this is known. Returns whether it is known."""
    server = total.custom_metrics.get("server") if total else None
    parts = {name: rise for name, rise in server.items() if isinstance(rise, Mapping)} if isinstance(server, Mapping) else {}
    names = sorted({name for rise in parts.values() for name in rise})
    if not names:
        return False
    columns: list[TableColumn] = [
        TableColumn(name="counter", read=lambda name: name),
        *(TableColumn(name=part, label=_PARTS.get(part), read=_rise(rise), number=True) for part, rise in parts.items()),
    ]
    ui.label(_COUNTERS).classes("text-subtitle2").props("role=heading aria-level=3")
    table = PageTable(_COUNTERS, columns, lambda name: name)
    table.show(names)
    return True


def _rise(rise: Mapping[str, Any]) -> Any:
    return lambda name: number(rise.get(name))
