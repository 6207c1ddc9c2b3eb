"""The filter fields of the list of runs."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from nicegui import ui

from drumbeat.web.databases import DatabaseType
from drumbeat.web.pages.plain_words import LOAD_MODES, RUN_STATUSES, SCALING_MODES
from drumbeat.web.pages.runs.filters import ORDERS, RunFilters


class Filters:
    """A row of filter fields; each change is applied at once."""

    def __init__(
        self, filters: RunFilters, templates: Mapping[str, str], apply: Callable[[RunFilters], Awaitable[None]]
    ) -> None:
        self._apply = apply
        with ui.row().classes("items-end w-full gap-2").props('role=search aria-label="Filter runs"'):
            self._search = ui.input("Name contains", value=filters.search, on_change=self._changed).props(
                "debounce=400 clearable"
            )
            self._status = self._choice("Status", "all statuses", RUN_STATUSES, filters.status)
            self._load = self._choice("Load mode", "all load modes", LOAD_MODES, filters.load_mode)
            self._scaling = self._choice("Scaling mode", "all scaling modes", SCALING_MODES, filters.scaling_mode)
            self._template = self._choice("Template", "all templates", templates, filters.template)
            types: Mapping[str, str] = {each: each for each in DatabaseType}
            self._database = self._choice("Database type", "all database types", types, filters.database)
            self._since = ui.input("Created since (UTC)", value=filters.since, on_change=self._changed).props(
                "type=date stack-label"
            )
            self._until = ui.input("Created until (UTC)", value=filters.until, on_change=self._changed).props(
                "type=date stack-label"
            )
            self._order = ui.select(ORDERS, value=filters.order, label="Sort by", on_change=self._changed).classes("w-48")

    def _choice(self, name: str, no_filter: str, choices: Mapping[str, str], value: str) -> ui.select:
        known = {"": no_filter, **{str(key): str(word) for key, word in choices.items()}}
        chosen = value if value in known else ""
        return ui.select(known, value=chosen, label=name, on_change=self._changed).classes("w-40")

    async def _changed(self) -> None:
        await self._apply(
            replace(
                RunFilters(),
                status=self._status.value or "",
                load_mode=self._load.value or "",
                scaling_mode=self._scaling.value or "",
                template=self._template.value or "",
                database=self._database.value or "",
                since=self._since.value or "",
                until=self._until.value or "",
                search=self._search.value or "",
                order=self._order.value or "newest",
            )
        )
