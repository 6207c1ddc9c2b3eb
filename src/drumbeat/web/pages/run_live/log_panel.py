"""What was decided and why, and what was logged."""

from collections import deque
from collections.abc import Sequence

from nicegui import ui

from drumbeat.bench.model import Decided
from drumbeat.web.feeds import Line
from drumbeat.web.pages.components import PageTable, TableColumn

MOST_LINES = 500
_SHOWN = 300
_FEW = 50  #: decisions that are shown at first
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_EVERYBODY, _CONTROLLER = "everybody", "controller"


def _at(decided: Decided) -> str:
    seconds = round(abs(decided.offset))
    return f"{'-' if decided.offset < -0.5 else '+'}{seconds // 60}:{seconds % 60:02d}"


_COLUMNS: list[TableColumn] = [
    TableColumn(name="at", read=_at),
    TableColumn(name="what", read=lambda each: each.what),
    TableColumn(name="why", read=lambda each: each.reason + (f" (not done: {each.error})" if each.error else "")),
]


class RunDecisions:
    """The newest first; all of them once that is asked for."""

    def __init__(self) -> None:
        with ui.row().classes("items-center"):
            ui.label("Decisions").classes("text-h6").props("role=heading aria-level=2")
            self._all = ui.switch("Show all", on_change=self._draw).props("dense")
        self._shown: tuple[Decided, ...] = ()
        self._table = PageTable("Decisions", _COLUMNS, lambda each: f"{each.at} {each.what} {each.reason}", page=50)
        self._table.element.props('no-data-label="Nothing has been decided yet."')

    def show(self, decisions: tuple[Decided, ...]) -> None:
        if decisions != self._shown:
            self._shown = decisions
            self._draw()

    def _draw(self) -> None:
        """Each change sends every row that is shown, so that a few are the rule."""
        newest = self._shown if self._all.value else self._shown[-_FEW:]
        self._all.set_visibility(len(self._shown) > _FEW)
        self._table.show(tuple(reversed(newest)))


class LogPanel:
    """Log lines by level and source."""

    def __init__(self) -> None:
        self._lines: deque[Line] = deque(maxlen=MOST_LINES)
        ui.label("Log").classes("text-h6").props("role=heading aria-level=2")
        with ui.row().classes("items-center"):
            self._level = ui.select(list(_LEVELS), value="INFO", label="at least", on_change=self._again).classes("w-32")
            self._source = ui.select([_EVERYBODY, _CONTROLLER], value=_EVERYBODY, label="from", on_change=self._again)
            self._source.classes("w-48")
        self._log = ui.log(max_lines=_SHOWN).classes("run-log w-full").props('role=log tabindex=0 aria-label="Log lines"')

    def add(self, lines: Sequence[Line]) -> None:
        for line in lines:
            self._lines.append(line)
            self._note_source(line)
            if self._is_shown(line):
                self._push(line)

    def _note_source(self, line: Line) -> None:
        if line["worker_id"] and line["worker_id"] not in self._source.options:
            self._source.set_options([*self._source.options, line["worker_id"]])

    def _is_shown(self, line: Line) -> bool:
        wanted = self._source.value
        from_there = wanted == _EVERYBODY or line["worker_id"] == (None if wanted == _CONTROLLER else wanted)
        return from_there and _rank(line["level"]) >= _rank(str(self._level.value))

    def _push(self, line: Line) -> None:
        who = line["worker_id"] or _CONTROLLER
        self._log.push(f"{line['timestamp']:%H:%M:%S} {line['level']:<7} {who}: {line['message']}", classes=line["level"])

    def _again(self) -> None:
        self._log.clear()
        for line in self._lines:
            if self._is_shown(line):
                self._push(line)


def _rank(level: str) -> int:
    return _LEVELS.index(level) if level in _LEVELS else 1
