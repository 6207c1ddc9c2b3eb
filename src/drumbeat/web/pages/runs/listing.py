"""Runs by what is asked for, a page at a time, with what may be done to those that are chosen."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from nicegui import ui

from drumbeat.bench.model import RunJudgement
from drumbeat.core.run import Run, RunId
from drumbeat.web.app_state import AppState
from drumbeat.web.databases import database_of
from drumbeat.web.pages.actions import button, confirmed, may_change, say, told
from drumbeat.web.pages.components import PageTable, TableColumn
from drumbeat.web.pages.run_live.figures import number
from drumbeat.web.pages.run_live.heading import run_again
from drumbeat.web.pages.runs.filter_fields import Filters
from drumbeat.web.pages.runs.filters import MOST_SORTED, PAGE, RunFilters
from drumbeat.web.verdicts import status_colour, verdict_colour, verdict_words

FEWEST, MOST = 2, 5  #: runs that can be compared
_CHOOSE_ALL = '<q-checkbox v-model="props.selected" aria-label="Choose all" />'
_CHOOSE = """<q-checkbox v-model="props.selected" :aria-label="'Choose ' + props.row.name" />"""
_CARD = f"""<div class="col-12 q-pa-xs"><q-card flat bordered><q-card-section class="q-pa-sm">{_CHOOSE}
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
    """One row of a list of runs."""

    run: Run
    judgement: RunJudgement


def run_columns() -> list[TableColumn]:
    """Name, status and verdict: what every list of runs begins with."""
    return [
        TableColumn(name="name", read=lambda row: row.run.name or row.run.run_id, href=lambda row: f"/runs/{row.run.run_id}"),
        TableColumn(
            name="status", read=lambda row: row.run.status, is_status=True,
            colour=lambda row: status_colour(row.run, row.judgement),
        ),
        TableColumn(
            name="verdict", read=lambda row: verdict_words(row.judgement), is_status=True,
            colour=lambda row: verdict_colour(row.judgement),
        ),
    ]  # fmt: skip


def _took(run: Run) -> timedelta | None:
    return run.ended_at - run.started_at if run.ended_at and run.started_at else None


def columns(templates: Mapping[str, str]) -> list[TableColumn]:
    return [
        *run_columns(),
        TableColumn(name="load", read=lambda row: _mode(row.run, "load_mode") or row.run.config.get("load_mode")),
        TableColumn(name="scaling", read=lambda row: _mode(row.run, "scaling", "mode")),
        TableColumn(name="database", read=lambda row: database_of(row.run.config)),
        TableColumn(name="template", read=lambda row: templates.get(row.run.template_id or "", row.run.template_id)),
        TableColumn(name="ops", label="ops/s", read=lambda row: number(row.run.qps), number=True),
        TableColumn(name="errors", read=lambda row: row.run.errors, number=True),
        TableColumn(name="made", read=lambda row: row.run.created_at),
        TableColumn(name="took", read=lambda row: _took(row.run)),
        TableColumn(name="ended because", read=lambda row: row.run.completion_reason),
    ]


class Listing:
    """The table, its filters, its pages."""

    def __init__(self, house: AppState, wanted: RunFilters, templates: Mapping[str, str]) -> None:
        self._house, self._wanted = house, wanted
        self._filters = Filters(wanted, templates, self._ask)
        self._actions()
        self._table = PageTable("Runs", columns(templates), lambda row: row.run.run_id)
        self._table.element.set_selection("multiple")
        self._table.element.add_slot("header-selection", _CHOOSE_ALL)
        self._table.element.add_slot("body-selection", _CHOOSE)
        self._table.element.add_slot("item", _CARD)
        self._table.element.on("selection", self._chosen_changed)
        self._none = ui.label("No run is all that.").classes("faint")
        with ui.row().classes("items-center"):
            self._back = ui.button("Newer", on_click=lambda: self._turn(-1)).props("flat no-caps")
            self._where = ui.label().classes("number")
            self._on = ui.button("Older", on_click=lambda: self._turn(1)).props("flat no-caps")

    def _actions(self) -> None:
        with ui.row().classes("items-center"):
            self._compare = ui.button("Compare", icon="balance", on_click=self._go_compare).props("no-caps unelevated")
            if may_change():
                self._rerun = button("Run again", self._again, "replay")
                self._delete = button("Delete", self._remove, "delete", danger=True)
            self._hint = ui.label().classes("text-caption faint")

    async def load(self) -> None:
        """Read and show. A day that is none is told, not read."""
        await told(self._load)

    async def _load(self) -> None:
        found = await self._read()
        judged = await self._house.verdicts.of_all(found[:PAGE])
        self._table.show([JudgedRun(run, judged[run.run_id]) for run in found[:PAGE]])
        self._table.element.selected = []
        self._chosen_changed()
        self._none.set_visibility(not found)
        first = (self._wanted.number - 1) * PAGE
        self._where.text = f"{first + 1} to {first + min(len(found), PAGE)}" if found else ""
        self._back.set_enabled(self._wanted.number > 1)
        self._on.set_enabled(len(found) > PAGE)

    async def _read(self) -> Sequence[Run]:
        """One more than is shown, to know whether there are more.

        The store sorts by age and knows every filter but the type of database; the rest is done here, of the newest runs.
        """
        runs, filters, first = self._house.plane.store.runs, self._wanted.filters(), (self._wanted.number - 1) * PAGE
        order, database = _SORTED.get(self._wanted.order), self._wanted.database
        if order is None and not database:
            return await runs.list(**filters, offset=first, limit=PAGE + 1)
        found = await runs.list(**filters, limit=MOST_SORTED)
        wanted = [run for run in found if not database or database_of(run.config) == database]
        return (sorted(wanted, key=order) if order else wanted)[first : first + PAGE + 1]

    async def _ask(self, wanted: RunFilters) -> None:
        """Something else is looked for: the address says so, and pages begin anew."""
        self._wanted = wanted
        ui.navigate.history.replace("/runs" + (f"?{wanted.query}" if wanted.query else ""))
        await self.load()

    async def _turn(self, by: int) -> None:
        await self._ask(replace(self._wanted, page=str(self._wanted.number + by)))

    @property
    def _chosen(self) -> list[RunId]:
        return [RunId(row["key"]) for row in self._table.element.selected]

    def _chosen_changed(self) -> None:
        many = len(self._chosen)
        self._compare.set_enabled(FEWEST <= many <= MOST)
        self._hint.text = f"{many} chosen" if many else f"Choose {FEWEST} to {MOST} to compare."
        if may_change():
            self._rerun.set_enabled(many == 1)
            self._delete.set_enabled(many > 0)

    def _go_compare(self) -> None:
        ui.navigate.to(f"/compare?runs={','.join(self._chosen)}")

    async def _again(self) -> None:
        await run_again(self._house, self._chosen[0])

    async def _remove(self) -> None:
        many = len(self._chosen)
        what = "this run" if many == 1 else f"these {many} runs"
        if not await confirmed(f"Delete {what}, with samples, results, files and logs? That cannot be undone.", "Delete"):
            return
        for run_id in self._chosen:
            await self._house.plane.bench().remove(run_id)
        say("Deleted.")
        await self.load()
