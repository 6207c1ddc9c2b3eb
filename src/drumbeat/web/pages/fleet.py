"""Fleets: every pool that a policy scales, what its workers cost, and what would happen under another policy."""

from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import quote

from nicegui import ui

from drumbeat.core.pool import PoolRow
from drumbeat.web.app_state import AppState
from drumbeat.web.pages import fleet_one, fleet_policy, fleet_simulate
from drumbeat.web.pages.actions import button
from drumbeat.web.pages.auto_refresh import every
from drumbeat.web.pages.components import Filled, PageTable, TableColumn
from drumbeat.web.pages.fleet_text import money, money_of
from drumbeat.web.pages.forms import Form, text_of
from drumbeat.web.pages.frame import empty, heading, page

if TYPE_CHECKING:
    from drumbeat.composition.plane import FleetStatus
    from drumbeat.web.pages.fleet_text import SpentFigures

EVERY = 10.0
_FIRST = "drumbeat fleet create render --policy lag_aware --set max_workers=6"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """One fleet at a glance."""

    status: "FleetStatus"
    spent: "SpentFigures | None"

    @property
    def pool_id(self) -> str:
        return self.status.pool.pool_id

    @property
    def workers(self) -> str:
        counted = Counter(each.standing for each in self.status.workers)
        return ", ".join(f"{count} {name}" for name, count in sorted(counted.items())) or "none"

    @property
    def last_beat(self) -> timedelta | None:
        return None if self.status.last is None else max(self.status.now - self.status.last.at, timedelta())

    @property
    def wanted(self) -> object:
        return None if self.status.last is None else self.status.last.summary.get("wanted")


_FLEETS = (
    TableColumn(
        name="pool", loose=True, read=lambda row: row.pool_id, href=lambda row: f"/fleet/{quote(row.pool_id, safe='')}"
    ),
    TableColumn(name="policy", read=lambda row: row.status.pool.policy.get("policy", "fixed")),
    TableColumn(name="workers", read=lambda row: row.workers),
    TableColumn(name="wanted", read=lambda row: row.wanted, number=True),
    TableColumn(name="burn", label="burn an hour", read=lambda row: money(row.spent and row.spent.burn_per_hour), number=True),
    TableColumn(name="today", label="spent today", read=lambda row: money_of(row.spent, "day"), number=True),
    TableColumn(name="beat", label="last beat", read=lambda row: row.last_beat, number=True),
)


def add(house: AppState) -> None:
    fleet_one.add(house)
    fleet_policy.add(house)
    fleet_simulate.add(house)

    @page(house, "/fleet", "Fleet")
    async def fleets() -> None:
        with ui.row().classes("w-full items-center"):
            heading("Fleet")
            ui.space()
            ui.link("Simulate a policy", "/simulate")
            _new_button()
        found = await _all(house)
        none = empty("No fleet yet: have a pool scaled by a policy.", _FIRST)
        shown = Filled(PageTable("Fleets", _FLEETS, key=lambda row: row.pool_id), none)
        shown.show(found)

        async def again() -> None:
            shown.show(await _all(house))

        every(EVERY, again)


async def _all(house: AppState) -> list[Fleet]:
    pools = [each for each in await house.plane.store.pools.list() if each.is_scaled]
    return [await _one(house, each) for each in pools]


async def _one(house: AppState, pool: PoolRow) -> Fleet:
    desk = house.plane.fleet(pool.pool_id)
    return Fleet(status=await desk.status(), spent=await fleet_one.spent(house, pool.pool_id))


def _new_button() -> None:
    async def ask() -> None:
        form = Form("A fleet", "Next")
        with form.card:
            ui.label("The name of a pool of jobs that is to be scaled, or of a new one.")
            name = form.field("name", ui.input("Pool"))

        async def chosen() -> str:
            return text_of(name)

        if pool_id := await form.ask(chosen):
            ui.navigate.to(f"/fleet/{quote(pool_id, safe='')}/policy")

    button("New fleet", ask, icon="add")
