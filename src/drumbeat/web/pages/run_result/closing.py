"""The card in a run's result with its cost, the status of its database statistics, report download and comparison link."""

from functools import partial

from nicegui import ui

from drumbeat.core.run import Result, RunId
from drumbeat.web.app_state import AppState
from drumbeat.web.pages.actions import button, may_change, notify, report_errors
from drumbeat.web.pages.plain_words import STATISTICS_STATUSES, plain
from drumbeat.web.pages.run_live.figures import number

FORMATS = {"html": "html", "markdown": "md", "csv": "csv", "json": "json", "junit": "xml", "prometheus": "prom"}


class ResultActions:
    """A card with a run's cost, the status of its database statistics, report download and comparison link."""

    def __init__(self, app: AppState, run_id: RunId) -> None:
        self._app, self._run_id, self._may_change = app, run_id, may_change()
        with ui.card().props("flat bordered").classes("w-full"), ui.row().classes("items-center w-full gap-4"):
            self._cost = ui.label()
            self._enrichment = ui.label()
            self._retry = button("Retry", self._enrich, "refresh", name="Retry database statistics")
            ui.space()
            ui.link("Compare with another run", f"/compare?runs={run_id}")
            with ui.button("Download report", icon="download").props("no-caps unelevated"), ui.menu():
                for report_format in FORMATS:
                    ui.menu_item(report_format, partial(self._download, report_format))

    def show(self, total: Result | None) -> None:
        cost = (total.custom_metrics.get("cost") if total else None) or {}
        per_1000 = cost.get("per_1000_operations")
        self._cost.text = (
            f"Cost: {number(cost.get('total'), 4)} {cost.get('currency', '')}, {number(per_1000, 4)} per 1,000 operations"
            if cost
            else "Cost: no prices set"
        )
        status = total.enrichment_status if total else None
        error = total.enrichment_error if total else None
        self._enrichment.text = f"Database statistics: {plain(STATISTICS_STATUSES, status) or 'none'}" + (
            f" ({error})" if error else ""
        )
        self._retry.set_visibility(self._may_change and status in ("FAILED", "SKIPPED", "PENDING"))

    async def _enrich(self) -> None:
        found = await self._app.plane.bench().enrich(self._run_id)
        self.show(found)
        notify(f"Database statistics: {plain(STATISTICS_STATUSES, found.enrichment_status)}")

    async def _download(self, report_format: str) -> None:
        await report_errors(partial(self._write, report_format))

    async def _write(self, report_format: str) -> None:
        text = await self._app.plane.bench().report(self._run_id, report_format)
        ui.download.content(text, f"{self._run_id}.{FORMATS[report_format]}")
