"""The page of one workflow: its progress, and its jobs as a graph and as a table, refreshed every few seconds."""

from collections.abc import Callable, Mapping
from urllib.parse import quote

from nicegui import ui

from drumbeat.client import GraphBox, JobStatus, Pool, WorkflowGraph
from drumbeat.web.app_state import AppState
from drumbeat.web.pages.actions import button, confirm, notify
from drumbeat.web.pages.auto_refresh import refresh_every
from drumbeat.web.pages.components import FigureTile, PageTable, TableColumn, tiles
from drumbeat.web.pages.element_names import set_attribute
from drumbeat.web.pages.frame import breadcrumbs, heading, page
from drumbeat.web.pages.overview import REFRESH_SECONDS
from drumbeat.web.pages.plain_words import JOB_STATUSES, counted
from drumbeat.web.pages.workflow_picture import MOST_BOXES, data_url

_ANY_POOL = "default"  #: workflows are read through a pool, but reach the jobs of all pools

_TILES: Mapping[str, Callable[[WorkflowGraph], object]] = {
    "Jobs": lambda graph: graph.progress.total,
    "Progress": lambda graph: f"{graph.progress.share * 100:.0f} %",
    "Waiting for other jobs": lambda graph: graph.progress.counts.get(JobStatus.WAITING, 0),
    "Ready or delayed": lambda graph: graph.progress.counts.get(JobStatus.PENDING, 0),
    "In progress": lambda graph: graph.progress.counts.get(JobStatus.CLAIMED, 0),
    "Done": lambda graph: graph.progress.counts.get(JobStatus.DONE, 0),
    "Poisoned": lambda graph: graph.progress.counts.get(JobStatus.POISONED, 0),
    "Cancelled": lambda graph: graph.progress.counts.get(JobStatus.CANCELLED, 0),
}


def _count(status: JobStatus) -> Callable[[tuple[int, GraphBox]], object]:
    return lambda row: row[1].counts.get(status, 0)


_BOXES = (
    TableColumn(name="level", read=lambda row: row[1].level, number=True),
    TableColumn(name="type", loose=True, read=lambda row: row[1].type or None),
    TableColumn(
        name="pool", loose=True, read=lambda row: row[1].pool_id, href=lambda row: f"/pools/{quote(row[1].pool_id, safe='')}"
    ),
    TableColumn(name="jobs", read=lambda row: row[1].total, number=True),
    *(TableColumn(name=str(status), label=JOB_STATUSES[status], read=_count(status), number=True) for status in JobStatus),
    TableColumn(
        name="example",
        label="job",
        loose=True,
        read=lambda row: row[1].job_ids[0],
        href=lambda row: f"/pools/{quote(row[1].pool_id, safe='')}/jobs/{quote(row[1].job_ids[0], safe='')}",
    ),
)


def workflow_url(workflow_id: str) -> str:
    return f"/workflows/{quote(workflow_id, safe='')}"


def add(app: AppState) -> None:
    @page(app, "/workflows/{workflow_id}", "Pools")
    async def workflow(workflow_id: str) -> None:
        pool = app.plane.pool(_ANY_POOL)
        first = await pool.workflow_graph(workflow_id)
        breadcrumbs(("Pools", "/pools"))
        with ui.row().classes("w-full items-center"):
            heading(f"Workflow {workflow_id}")
            ui.space()
            _cancel_button(pool, workflow_id)
        panels = _WorkflowPanels(workflow_id)
        panels.show(first)

        async def refresh() -> None:
            panels.show(await pool.workflow_graph(workflow_id))

        refresh_every(REFRESH_SECONDS, refresh)


def _cancel_button(pool: Pool, workflow_id: str) -> None:
    async def cancel() -> None:
        if await confirm(f"Cancel all unfinished jobs of workflow {workflow_id}?", "Cancel workflow"):
            jobs = await pool.cancel_workflow(workflow_id)
            notify(f"Cancelled {counted(len(jobs), 'job')}, or asked the workers to stop.")

    button("Cancel workflow", cancel, icon="block", danger=True)


class _WorkflowPanels:
    """Tiles, picture and table of a workflow."""

    def __init__(self, workflow_id: str) -> None:
        self._workflow_id = workflow_id
        with tiles():
            self._tiles = {name: FigureTile(name) for name in _TILES}
        with ui.element("div").classes("w-full").style("overflow-x: auto").props('tabindex=0 role=region aria-label="Graph"'):
            self._picture = ui.element("img").style("max-width: none")
        self._more = ui.label("").classes("faint")
        heading("Jobs by level", 2)
        self._table = PageTable("Jobs by level", _BOXES, key=lambda row: str(row[0]))

    def show(self, graph: WorkflowGraph) -> None:
        for name, read in _TILES.items():
            self._tiles[name].show(read(graph))
        levels = len({box.level for box in graph.boxes})
        size = f"{counted(graph.progress.total, 'job')} in {counted(levels, 'level')}"
        about = f"Graph of workflow {self._workflow_id}: {size}. The table lists them."
        set_attribute(self._picture, "alt", about)
        set_attribute(self._picture, "src", data_url(graph))
        self._more.set_text(_remarks(graph))
        self._more.set_visibility(bool(_remarks(graph)))
        self._table.show([*enumerate(graph.boxes)])


def _remarks(graph: WorkflowGraph) -> str:
    found = ["Jobs of the same level, pool and type are one box."] if any(box.total > 1 for box in graph.boxes) else []
    if graph.is_sampled:
        found.append("The lines between boxes come from a sample of the jobs, because the workflow is large.")
    if len(graph.boxes) > MOST_BOXES:
        found.append(f"The first {MOST_BOXES} boxes are drawn; the table lists all.")
    return " ".join(found)
