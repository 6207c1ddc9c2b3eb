"""The table of runs: one page at a time, filtered, with actions on the selected runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any

from nicegui import ui

from drumbeat.bench.model import RunJudgement
from drumbeat.core.run import Run, RunId
from drumbeat.web.app_state import AppState
from drumbeat.web.databases import database_of, matching_runs
from drumbeat.web.pages.actions import button, confirm, may_change, notify, report_errors
from drumbeat.web.pages.components import PageTable, TableColumn
from drumbeat.web.pages.plain_words import END_REASONS, LOAD_MODES, RUN_STATUSES, SCALING_MODES, plain
from drumbeat.web.pages.run_live.figures import number
from drumbeat.web.pages.run_live.heading import CREATE_SAME, run_again
from drumbeat.web.pages.runs.filter_fields import Filters
from drumbeat.web.pages.runs.filters import PAGE, RunFilters
from drumbeat.web.verdicts import status_colour, verdict_colour, verdict_words

FEWEST, MOST = 2, 5  #: number of runs that can be compared
_SELECT_ALL = '<q-checkbox v-model="props.selected" aria-label="Select all" />'
_SELECT = """<q-checkbox v-model="props.selected" :aria-label="'Select ' + props.row.name" />"""
_CARD = f"""<div class="col-12 q-pa-xs"><q-card flat bordered><q-card-section class="q-pa-sm">{_SELECT}
<a :href="'/runs/' + props.row.key">{{{{ props.row.name }}}}</a>
<div v-for="col in props.cols.slice(1)" :key="col.name" class="row no-wrap q-py-xs">
<div class="col-4 faint text-caption">{{{{ col.label }}}}</div><div class="col-8">{{{{ col.value }}}}</div>
</div></q-card-section></q-card></div>"""

_SORTED: Mapping[str, Any] = {
    "name": lambda run: (run.name.lower(), run.run_id),
    "qps": lambda run: (-run.qps, run.run_id),
    "errors": lambda run: (-run.errors, run.run_id),
}


def _mode(run: Run, *names: str) -> str:
    block: Any = run.config.get("document") or run.config
    for name in names:
        block = block.get(name) if isinstance(block, Mapping) else None
    return str(block or "")


@dataclass(frozen=True, slots=True)
class JudgedRun:
    """A run with its verdict, shown as one row of a list of runs."""

    run: Run
    judgement: RunJudgement


def run_columns() -> list[TableColumn]:
    """Return the first columns of every list of runs: name, status and verdict."""
    return [
        TableColumn(name="name", read=lambda row: row.run.name or row.run.run_id, href=lambda row: f"/runs/{row.run.run_id}"),
        TableColumn(
            name="status", read=lambda row: plain(RUN_STATUSES, row.run.status), is_status=True,
            colour=lambda row: status_colour(row.run, row.judgement),
        ),
        TableColumn(
            name="verdict", read=lambda row: verdict_words(row.judgement), is_status=True,
            colour=lambda row: verdict_colour(row.judgement),
        ),
    ]  # fmt: skip


def _duration(run: Run) -> timedelta | None:
    return run.ended_at - run.started_at if run.ended_at and run.started_at else None


def columns(templates: Mapping[str, str]) -> list[TableColumn]:
    return [
        *run_columns(),
        TableColumn(
            name="load_mode",
            read=lambda row: plain(LOAD_MODES, _mode(row.run, "load_mode") or row.run.config.get("load_mode")),
        ),
        TableColumn(name="scaling_mode", read=lambda row: plain(SCALING_MODES, _mode(row.run, "scaling", "mode"))),
        TableColumn(name="database", label="database type", read=lambda row: database_of(row.run.config)),
        TableColumn(name="template", read=lambda row: templates.get(row.run.template_id or "", row.run.template_id)),
        TableColumn(name="ops", label="operations/s", read=lambda row: number(row.run.qps), number=True),
        TableColumn(name="errors", read=lambda row: row.run.errors, number=True),
        TableColumn(name="created", label="created (UTC)", read=lambda row: row.run.created_at),
        TableColumn(name="duration", read=lambda row: _duration(row.run)),
        TableColumn(name="reason", label="end reason", read=lambda row: plain(END_REASONS, row.run.completion_reason)),
    ]


class Listing:
    """The table of runs with its filters, actions and pages."""

    def __init__(self, app: AppState, filters: RunFilters, templates: Mapping[str, str]) -> None:
        self._app, self._filters = app, filters
        self._filter_fields = Filters(filters, templates, self._apply)
        self._actions()
        self._table = PageTable("Runs", columns(templates), lambda row: row.run.run_id)
        self._table.element.set_selection("multiple")
        self._table.element.add_slot("header-selection", _SELECT_ALL)
        self._table.element.add_slot("body-selection", _SELECT)
        self._table.element.add_slot("item", _CARD)
        self._table.element.on("selection", self._selection_changed)
        self._empty = ui.label("No matching runs").classes("faint")
        with ui.row().classes("items-center"):
            self._previous = ui.button("Previous", on_click=lambda: self._turn_page(-1)).props("flat no-caps")
            self._range = ui.label().classes("number")
            self._next = ui.button("Next", on_click=lambda: self._turn_page(1)).props("flat no-caps")

    def _actions(self) -> None:
        with ui.row().classes("items-center"):
            self._compare = ui.button("Compare", icon="balance", on_click=self._open_comparison).props("no-caps unelevated")
            if may_change():
                self._rerun = button(CREATE_SAME, self._rerun_selected, "replay")
                self._delete = button("Delete", self._delete_selected, "delete", danger=True)
            self._hint = ui.label().classes("text-caption faint")

    async def load(self) -> None:
        """Read and show the current page; errors, such as an invalid date, become notifications."""
        await report_errors(self._load)

    async def _load(self) -> None:
        found = await self._read()
        judged = await self._app.verdicts.of_all(found[:PAGE])
        self._table.show([JudgedRun(run, judged[run.run_id]) for run in found[:PAGE]])
        self._table.element.selected = []
        self._selection_changed()
        self._empty.set_visibility(not found)
        first = (self._filters.number - 1) * PAGE
        self._range.text = f"{first + 1} to {first + min(len(found), PAGE)}" if found else ""
        self._previous.set_enabled(self._filters.number > 1)
        self._next.set_enabled(len(found) > PAGE)

    async def _read(self) -> Sequence[Run]:
        """Return the runs of the current page and one more, to know whether there is a next page."""
        key, first = _SORTED.get(self._filters.order), (self._filters.number - 1) * PAGE
        order = partial(sorted, key=key) if key else None
        filters = self._filters.filters()
        return await matching_runs(self._app.plane.store.runs, filters, self._filters.database, order, first, PAGE + 1)

    async def _apply(self, filters: RunFilters) -> None:
        """Apply new filters: update the URL and load the runs."""
        self._filters = filters
        ui.navigate.history.replace("/runs" + (f"?{filters.query}" if filters.query else ""))
        await self.load()

    async def _turn_page(self, by: int) -> None:
        await self._apply(replace(self._filters, page=str(self._filters.number + by)))

    @property
    def _selected(self) -> list[RunId]:
        return [RunId(row["key"]) for row in self._table.element.selected]

    def _selection_changed(self) -> None:
        count = len(self._selected)
        self._compare.set_enabled(FEWEST <= count <= MOST)
        self._hint.text = f"{count} selected" if count else f"Select {FEWEST} to {MOST} runs to compare."
        if may_change():
            self._rerun.set_enabled(count == 1)
            self._delete.set_enabled(count > 0)

    def _open_comparison(self) -> None:
        ui.navigate.to(f"/compare?runs={','.join(self._selected)}")

    async def _rerun_selected(self) -> None:
        await run_again(self._app, self._selected[0])

    async def _delete_selected(self) -> None:
        count = len(self._selected)
        what = "this run" if count == 1 else f"these {count} runs"
        if not await confirm(f"Delete {what} with samples, results, files and logs? This cannot be undone.", "Delete"):
            return
        for run_id in self._selected:
            await self._app.plane.bench().remove(run_id)
        notify("Run deleted." if count == 1 else f"{count} runs deleted.")
        await self.load()
