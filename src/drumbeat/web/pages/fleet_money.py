"""Shows worker counts, costs and alarms of a fleet."""

from typing import TYPE_CHECKING

from nicegui import ui

from drumbeat.web.pages.components import FigureTile, tiles
from drumbeat.web.pages.element_names import set_attribute, set_label
from drumbeat.web.pages.fleet_text import SpentFigures, budget_share, money, spent_text
from drumbeat.web.pages.plain_words import COSTS

if TYPE_CHECKING:
    from drumbeat.composition.plane import FleetStatus

PERIODS = {"hour": "this hour", "day": "today", "month": "this month"}
_RATE = "What all current workers cost per hour, in the currency of their prices"
_BUDGET_WARNING = 0.9  #: share of a budget above which its bar turns red


class Alarms:
    """Shows the alarms of the last beat (pass of the autoscaler)."""

    def __init__(self) -> None:
        self._alarms: list[str] = []
        self._column = ui.column().classes("w-full gap-1").props('role=status aria-live=polite aria-label="Alarms"')

    def show(self, status: "FleetStatus") -> None:
        found = [str(each) for each in status.last.summary.get("alarms", ())] if status.last else []
        if found == self._alarms:
            return
        self._alarms = found
        self._column.clear()
        with self._column:
            for alarm in found:
                with ui.row().classes("items-center gap-2 no-wrap"):
                    ui.icon("notification_important", color="warning").props("aria-hidden=true")
                    ui.label(f"Alarm: {alarm}")


class FleetTiles:
    """Tiles with worker counts, costs and used budgets of a fleet."""

    def __init__(self) -> None:
        with tiles():
            self._live, self._terminating = FigureTile("Live workers"), FigureTile("Terminating workers")
            self._target, self._cost = FigureTile("Target workers"), FigureTile("Cost per hour", _RATE)
            self._spent: dict[str, tuple[FigureTile, ui.linear_progress]] = {}
            for period, when in PERIODS.items():
                with ui.element().classes("tile"):
                    tile = FigureTile(f"Cost {when} (UTC)", COSTS)
                    bar = set_label(ui.linear_progress(0.0, show_value=False), f"Budget used {when}")
                    bar.set_visibility(False)
                self._spent[period] = (tile, bar)

    def show(self, status: "FleetStatus") -> None:
        self._live.show(len(status.workers))
        self._terminating.show(sum(each.is_terminating for each in status.workers))
        self._target.show(status.last.summary.get("wanted") if status.last else None)

    def show_spent(self, found: SpentFigures | None) -> None:
        self._cost.show(money(found.burn_per_hour) if found else None)
        for period, (tile, bar) in self._spent.items():
            tile.show(spent_text(found, period))
            share = budget_share(found, period) if found else None
            bar.set_visibility(share is not None)
            bar.value = share or 0.0
            set_attribute(bar, "color", "negative" if (share or 0.0) > _BUDGET_WARNING else "primary")
