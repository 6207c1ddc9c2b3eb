"""How a fleet stands: its workers and its money as figures, and the alarms of its last beat."""

from typing import TYPE_CHECKING

from nicegui import ui

from drumbeat.web.pages.components import FigureTile, tiles
from drumbeat.web.pages.element_names import called, given
from drumbeat.web.pages.fleet_text import SpentFigures, money, money_of, share_of

if TYPE_CHECKING:
    from drumbeat.composition.plane import FleetStatus

PERIODS = ("hour", "day", "month")
_NEARLY_SPENT = 0.9  #: of a ceiling


class Alarms:
    """What the last beat found odd enough to be told; not there while nothing is."""

    def __init__(self) -> None:
        self._told: list[str] = []
        self._place = ui.column().classes("w-full gap-1").props('role=status aria-live=polite aria-label="Alarms"')

    def show(self, seen: "FleetStatus") -> None:
        found = [str(each) for each in seen.last.summary.get("alarms", ())] if seen.last else []
        if found == self._told:
            return
        self._told = found
        self._place.clear()
        with self._place:
            for alarm in found:
                with ui.row().classes("items-center gap-2 no-wrap"):
                    ui.icon("notification_important", color="warning").props("aria-hidden=true")
                    ui.label(f"Alarm: {alarm}")


class Money:
    """Figures, shown anew as they change."""

    def __init__(self) -> None:
        with tiles():
            self._live, self._leaving = FigureTile("Live workers"), FigureTile("Terminating")
            self._wanted, self._burn = FigureTile("Wanted"), FigureTile("Burn an hour")
            self._spent: dict[str, tuple[FigureTile, ui.linear_progress]] = {}
            for period in PERIODS:
                with ui.element().classes("tile"):
                    tile = FigureTile(f"Spent this {period}")
                    bar = called(ui.linear_progress(0.0, show_value=False), f"Share of this {period}'s ceiling")
                    bar.set_visibility(False)
                self._spent[period] = (tile, bar)

    def show(self, seen: "FleetStatus") -> None:
        self._live.show(len(seen.workers))
        self._leaving.show(sum(each.is_terminating for each in seen.workers))
        self._wanted.show(seen.last.summary.get("wanted") if seen.last else None)

    def show_spent(self, found: SpentFigures | None) -> None:
        self._burn.show(money(found.burn_per_hour) if found else None)
        for period, (tile, bar) in self._spent.items():
            tile.show(money_of(found, period))
            share = share_of(found, period) if found else None
            bar.set_visibility(share is not None)
            bar.value = share or 0.0
            given(bar, "color", "negative" if (share or 0.0) > _NEARLY_SPENT else "primary")
