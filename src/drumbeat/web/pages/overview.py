"""The first page: what is under way, and what needs somebody."""

from nicegui import ui

from drumbeat.web.house import House
from drumbeat.web.pages.frame import empty, frame


def add(house: House) -> None:
    @ui.page("/")
    async def overview() -> None:
        with frame(house, "Overview"):
            runs = await house.plane.store.runs.list(limit=5)
            if not runs:
                empty("No run yet.", "drumbeat bench run examples/find-max.yaml")
            for run in runs:
                ui.label(f"{run.name or run.run_id}: {run.status}")
