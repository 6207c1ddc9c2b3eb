"""What else belongs to a result: cost, whether it was completed with the server's totals, reports to take away, comparison."""

from functools import partial

from nicegui import ui

from drumbeat.core.run import Result, RunId
from drumbeat.web.app_state import AppState
from drumbeat.web.pages.actions import button, may_change, say, told
from drumbeat.web.pages.run_live.figures import number

FORMS = {"html": "html", "markdown": "md", "csv": "csv", "json": "json", "junit": "xml", "prometheus": "prom"}


class Closing:
    """Cost, enrichment, reports."""

    def __init__(self, house: AppState, run_id: RunId) -> None:
        self._house, self._run_id, self._may_change = house, run_id, may_change()
        with ui.card().props("flat bordered").classes("w-full"), ui.row().classes("items-center w-full gap-4"):
            self._cost = ui.label()
            self._enrichment = ui.label()
            self._retry = button("Try again", self._enrich, "refresh", name="Try the enrichment again")
            ui.space()
            ui.link("Compare with …", f"/compare?runs={run_id}")
            with ui.button("Report", icon="download").props("no-caps unelevated"), ui.menu():
                for form in FORMS:
                    ui.menu_item(form, partial(self._download, form))

    def show(self, whole: Result | None) -> None:
        cost = (whole.custom_metrics.get("cost") if whole else None) or {}
        each = cost.get("per_1000_operations")
        self._cost.text = (
            f"Cost: {number(cost.get('total'), 4)} {cost.get('currency', '')}, {number(each, 4)} per 1,000 operations"
            if cost
            else "Cost: no prices were given"
        )
        status = whole.enrichment_status if whole else None
        error = whole.enrichment_error if whole else None
        self._enrichment.text = f"Enrichment: {status or 'none'}" + (f" ({error})" if error else "")
        self._retry.set_visibility(self._may_change and status in ("FAILED", "SKIPPED", "PENDING"))

    async def _enrich(self) -> None:
        found = await self._house.plane.bench().enrich(self._run_id)
        self.show(found)
        say(f"Enrichment: {found.enrichment_status}")

    async def _download(self, form: str) -> None:
        await told(partial(self._write, form))

    async def _write(self, form: str) -> None:
        text = await self._house.plane.bench().report(self._run_id, form)
        ui.download.content(text, f"{self._run_id}.{FORMS[form]}")
