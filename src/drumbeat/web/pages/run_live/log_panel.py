"""The tables of decisions and the log of a run."""

from collections import deque
from collections.abc import Sequence

from nicegui import ui

from drumbeat.bench.model import DecisionRecord
from drumbeat.core.log import LEVELS, log_rank
from drumbeat.web.feeds import Line
from drumbeat.web.pages.components import PageTable, TableColumn
from drumbeat.web.pages.plain_words import RUN_ACTIONS, plain_action

MOST_LINES = 500
_SHOWN = 300
_SHOWN_AT_FIRST = 50  #: number of decisions shown by default
_ALL_SOURCES, _ORCHESTRATOR = "all sources", "orchestrator"


def _offset_text(decided: DecisionRecord) -> str:
    seconds = round(abs(decided.offset))
    return f"{'-' if decided.offset < -0.5 else '+'}{seconds // 60}:{seconds % 60:02d}"


_COLUMNS: list[TableColumn] = [
    TableColumn(name="time", label="time since start", read=_offset_text),
    TableColumn(name="action", read=lambda each: plain_action(RUN_ACTIONS, each.what)),
    TableColumn(name="reason", read=lambda each: each.reason + (f" (failed: {each.error})" if each.error else "")),
]


class RunDecisions:
    """A table of a run's decisions, newest first: the latest 50, or all on request."""

    def __init__(self) -> None:
        with ui.row().classes("items-center"):
            ui.label("Decisions").classes("text-h6").props("role=heading aria-level=2")
            self._all = ui.switch("Show all", on_change=self._draw).props("dense")
        self._shown: tuple[DecisionRecord, ...] = ()
        self._table = PageTable("Decisions", _COLUMNS, lambda each: f"{each.at} {each.what} {each.reason}", page=50)
        self._table.element.props('no-data-label="No decisions yet"')

    def show(self, decisions: tuple[DecisionRecord, ...]) -> None:
        if decisions != self._shown:
            self._shown = decisions
            self._draw()

    def _draw(self) -> None:
        """Fill the table of decisions, newest first: with the latest 50, or with all if the user has switched that on."""
        newest = self._shown if self._all.value else self._shown[-_SHOWN_AT_FIRST:]
        self._all.set_visibility(len(self._shown) > _SHOWN_AT_FIRST)
        self._table.show(tuple(reversed(newest)))


class LogPanel:
    """The log lines of a run, filtered by level and source."""

    def __init__(self) -> None:
        self._lines: deque[Line] = deque(maxlen=MOST_LINES)
        ui.label("Log (times in UTC)").classes("text-h6").props("role=heading aria-level=2")
        with ui.row().classes("items-center"):
            self._level = ui.select(list(LEVELS), value="INFO", label="Min level", on_change=self._redraw).classes("w-32")
            self._source = ui.select([_ALL_SOURCES, _ORCHESTRATOR], value=_ALL_SOURCES, label="Source", on_change=self._redraw)
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
        source = self._source.value
        matches = source == _ALL_SOURCES or line["worker_id"] == (None if source == _ORCHESTRATOR else source)
        return matches and log_rank(line["level"]) >= log_rank(str(self._level.value))

    def _push(self, line: Line) -> None:
        source = line["worker_id"] or _ORCHESTRATOR
        self._log.push(f"{line['timestamp']:%H:%M:%S} {line['level']:<7} {source}: {line['message']}", classes=line["level"])

    def _redraw(self) -> None:
        self._log.clear()
        for line in self._lines:
            if self._is_shown(line):
                self._push(line)
