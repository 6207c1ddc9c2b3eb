"""The list of fleets: pools that a policy scales, with their workers and costs."""

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import quote

from nicegui import ui

from drumbeat.core.errors import InvalidInput
from drumbeat.core.pool import PoolRow
from drumbeat.web.app_state import AppState
from drumbeat.web.pages import fleet_one, fleet_policy, fleet_simulate
from drumbeat.web.pages.actions import button
from drumbeat.web.pages.auto_refresh import refresh_every
from drumbeat.web.pages.components import PageTable, TableColumn, TableOrPlaceholder
from drumbeat.web.pages.fleet_text import money, spent_text
from drumbeat.web.pages.forms import Form, text_of
from drumbeat.web.pages.frame import empty_state, heading, page
from drumbeat.web.pages.overview import workers_text
from drumbeat.web.pages.plain_words import COSTS, POLICIES, plain

if TYPE_CHECKING:
    from drumbeat.composition.plane import FleetStatus
    from drumbeat.web.pages.fleet_text import SpentFigures

_REFRESH_SECONDS = 10.0
_FIRST_COMMAND = "drumbeat fleet create render --policy lag_aware --set max_workers=6"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """A fleet in the list of fleets: its status and its costs."""

    status: "FleetStatus"
    spent: "SpentFigures | None"

    @property
    def pool_id(self) -> str:
        return self.status.pool.pool_id

    @property
    def workers(self) -> str:
        return workers_text(self.status.workers)

    @property
    def last_beat(self) -> timedelta | None:
        return None if self.status.last is None else max(self.status.now - self.status.last.at, timedelta())

    @property
    def target(self) -> object:
        return None if self.status.last is None else self.status.last.summary.get("wanted")


_FLEETS = (
    TableColumn(
        name="fleet", loose=True, read=lambda row: row.pool_id, href=lambda row: f"/fleet/{quote(row.pool_id, safe='')}"
    ),
    TableColumn(name="policy", read=lambda row: plain(POLICIES, row.status.pool.policy.get("policy", "fixed"))),
    TableColumn(name="workers", read=lambda row: row.workers),
    TableColumn(name="target", label="target workers", read=lambda row: row.target, number=True),
    TableColumn(name="cost", label="cost per hour", read=lambda row: money(row.spent and row.spent.burn_per_hour), number=True),
    TableColumn(name="today", label="cost today (UTC)", read=lambda row: spent_text(row.spent, "day"), number=True),
    TableColumn(name="beat", label="last decision", read=lambda row: row.last_beat, number=True),
)


def add(app: AppState) -> None:
    fleet_one.add(app)
    fleet_policy.add(app)
    fleet_simulate.add(app)

    @page(app, "/fleet", "Fleets")
    async def fleets() -> None:
        with ui.row().classes("w-full items-center"):
            heading("Fleets")
            ui.space()
            ui.link("Simulate a policy", "/simulate")
            _new_button()
        rows = await _fleets(app)
        none = empty_state("No fleets yet. Create one:", _FIRST_COMMAND)
        table = TableOrPlaceholder(PageTable("Fleets", _FLEETS, key=lambda row: row.pool_id), none)
        table.show(rows)
        ui.label(COSTS).classes("text-caption faint")

        async def refresh() -> None:
            table.show(await _fleets(app))

        refresh_every(_REFRESH_SECONDS, refresh)


async def _fleets(app: AppState) -> list[Fleet]:
    pools = [each for each in await app.plane.store.pools.list() if each.is_scaled]
    return [await _fleet(app, each) for each in pools]


async def _fleet(app: AppState, pool: PoolRow) -> Fleet:
    fleet = app.plane.fleet(pool.pool_id)
    return Fleet(status=await fleet.status(), spent=await fleet_one.spending(app, pool.pool_id))


def _new_button() -> None:
    async def ask() -> None:
        form = Form("New fleet", "Next")
        with form.card:
            ui.label("Name of an existing job pool to scale, or of a new pool.")
            name = form.field("name", ui.input("Pool"))

        async def read_name() -> str:
            if not text_of(name):
                raise InvalidInput("name: expected the name of a pool, got none")
            return text_of(name)

        if pool_id := await form.ask(read_name):
            ui.navigate.to(f"/fleet/{quote(pool_id, safe='')}/policy")

    button("New fleet", ask, icon="add")
