"""The page of one job pool: queue depth, throughput, workers and jobs."""

import shlex
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote, urlencode

from nicegui import ui

from drumbeat.core.beat import Beat
from drumbeat.core.job import Job, JobId, JobStatus, format_count
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import shown_health, silence
from drumbeat.web.app_state import AppState
from drumbeat.web.pages.actions import button, confirm, notify
from drumbeat.web.pages.auto_refresh import refresh_every
from drumbeat.web.pages.components import (
    FigureTile,
    PageTable,
    Series,
    TableColumn,
    TableOrPlaceholder,
    chart,
    chart_options,
    short,
    tiles,
)
from drumbeat.web.pages.frame import breadcrumbs, heading, page
from drumbeat.web.pages.incremental_charts import GrowingChart
from drumbeat.web.pages.job_columns import job_columns
from drumbeat.web.pages.overview import REFRESH_SECONDS, PoolSummary, pool_summary
from drumbeat.web.pages.plain_words import JOB_STATUSES, POISONED, counted
from drumbeat.web.pages.pools_operations import links
from drumbeat.web.pages.pools_push import push_form
from drumbeat.web.pages.pools_schedules import SchedulePanel
from drumbeat.web.pages.workflows import workflow_url

PAGE = 25
_CHART_SPAN = timedelta(hours=1)
_RATE_SPAN = timedelta(minutes=1)
_POINTS = 1800
_LONGEST_WAIT, _RATE = "Longest wait", "Done or poisoned per minute"
_HINTS = {"Poisoned": POISONED, _LONGEST_WAIT: "How long the oldest ready job has waited"}  #: tooltips of tiles

_WORKERS = (
    TableColumn(name="worker", read=lambda row: row[1].worker_id),
    TableColumn(name="status", read=lambda row: row[1].fleet_status, is_status=True),
    TableColumn(name="health", read=lambda row: shown_health(row[1], row[0].now, row[0].pool.thresholds), is_status=True),
    TableColumn(name="silent", label="last heartbeat", read=lambda row: silence(row[1], row[0].now), number=True),
    TableColumn(name="jobs", label="jobs in progress", read=lambda row: row[1].active, number=True),
    TableColumn(name="engine", read=lambda row: row[1].engine),
    TableColumn(name="host", read=lambda row: row[1].place),
    TableColumn(name="problem", read=lambda row: row[1].not_started),
)


_TILES: Mapping[str, Callable[[PoolSummary], object]] = {
    "Ready": lambda summary: format_count(summary.counts.ready),
    _LONGEST_WAIT: lambda summary: summary.oldest_age,
    "Delayed": lambda summary: format_count(summary.counts.delayed),
    "Waiting for other jobs": lambda summary: format_count(summary.counts.waiting),
    "In progress": lambda summary: format_count(summary.counts.claimed),
    "Done": lambda summary: summary.counts.done,
    "Poisoned": lambda summary: summary.counts.poisoned,
    "Cancelled": lambda summary: summary.counts.cancelled,
    _RATE: lambda summary: None,
    "Paused": lambda summary: summary.is_paused,
}


def per_minute(finished: Sequence[tuple[datetime, int]]) -> float | None:
    """Return the finished jobs per minute between the first and the last sample; None with a single sample."""
    (since, before), (until, after) = finished[0], finished[-1]
    minutes = (until - since) / timedelta(minutes=1)
    return max(after - before, 0) / minutes if minutes > 0 else None


@dataclass(frozen=True, slots=True)
class Point:
    """Job counts and workers of a pool at one moment, for the chart."""

    at: datetime
    ready: int | None
    claimed: int | None
    workers: int | None


def point_of(beat: Beat) -> Point | None:
    """Return the numbers of jobs and live workers that a beat (pass of a control loop) recorded; None if it recorded none."""
    view: Any = beat.view
    if view is None:
        return None
    queue = view.get("queue") or view
    live = [each for each in view.get("workers", ()) if each.get("status") not in ("terminated", "error", "lost")]
    return Point(beat.at, queue.get("ready"), queue.get("claimed"), len(live))


def series(points: Any) -> Series:
    return {
        "ready": [(each.at, each.ready) for each in points],
        "in progress": [(each.at, each.claimed) for each in points],
        "workers": [(each.at, each.workers) for each in points],
    }


def add(app: AppState) -> None:
    @page(app, "/pools/{pool_id}", "Pools")
    async def pool(pool_id: str, status: str = "", after: str = "") -> None:
        await app.plane.pool(pool_id).get()
        breadcrumbs(("Pools", "/pools"))
        with ui.row().classes("w-full items-center"):
            heading(pool_id)
            ui.space()
            _buttons(app, pool_id)
        panels = _PoolPanels(await pool_summary(app, await app.plane.store.pools.get(PoolId(pool_id))))
        await panels.start(app)
        schedules = SchedulePanel(app, PoolId(pool_id))
        await schedules.refresh()
        await _jobs(app, pool_id, status, after)
        refresh_every(REFRESH_SECONDS, lambda: panels.refresh(app))
        refresh_every(REFRESH_SECONDS, schedules.refresh)


def _buttons(app: AppState, pool_id: str) -> None:
    pool = app.pool(pool_id)

    async def pause() -> None:
        await pool.pause()
        notify(f"{pool_id} paused. Jobs in progress continue; no new jobs are started.")

    async def resume() -> None:
        await pool.resume()
        notify(f"{pool_id} resumed.")

    async def push() -> None:
        pushed = await push_form(app, pool_id)
        if pushed is not None:
            notify(f"Pushed job {pushed.job_id} to {pool_id}.")

    async def requeue() -> None:
        if await confirm(f"Requeue all poisoned jobs of {pool_id}?", "Requeue all"):
            ids = await pool.requeue()
            notify(f"Requeued {counted(len(ids), 'job')}.")
            ui.navigate.reload()

    button("Push a job", push, icon="add")
    button("Pause", pause, icon="pause")
    button("Resume", resume, icon="play_arrow")
    button("Requeue poisoned jobs", requeue, icon="replay")


class _PoolPanels:
    """Tiles, chart and workers of a pool, refreshed every few seconds."""

    def __init__(self, first: PoolSummary) -> None:
        self._pool = first.pool
        self._points: deque[Point] = deque(maxlen=_POINTS)
        self._finished: deque[tuple[datetime, int]] = deque()  #: time and number of finished jobs, over the last minute
        with tiles():
            self._tiles = {name: FigureTile(name, _HINTS.get(name, "")) for name in _TILES}
        name = f"Jobs and workers of {first.pool.pool_id} in the last hour"
        self._chart = GrowingChart(chart("Jobs and workers, last hour (UTC)", series(()), name=name))
        heading("Workers", 2)
        command = f"drumbeat pool work {shlex.quote(first.pool.pool_id)}"
        none = ui.label(f"No live workers. Start one with: {command}, or with a trigger.").classes("faint")
        self._workers = TableOrPlaceholder(PageTable("Workers", _WORKERS, key=lambda row: row[1].worker_id), none)

    async def start(self, app: AppState) -> None:
        now = await app.plane.store.now()
        beats = await app.plane.store.beats.list(self._pool.pool_id, since=now - _CHART_SPAN, limit=_POINTS)
        self._points.extend(point for beat in beats if (point := point_of(beat)) is not None)
        await self.refresh(app)

    async def refresh(self, app: AppState) -> None:
        self._show(await pool_summary(app, await app.plane.store.pools.get(self._pool.pool_id)))

    def _show(self, summary: PoolSummary) -> None:
        counts = summary.counts
        self._finished.append((summary.now, counts.done_so_far + counts.poisoned_so_far))
        while summary.now - self._finished[0][0] > _RATE_SPAN:
            self._finished.popleft()
        for name, of in _TILES.items():
            self._tiles[name].show(of(summary))
        self._tiles[_RATE].show(per_minute(self._finished))
        self._points.append(Point(summary.now, counts.ready, counts.claimed, len(summary.workers)))
        self._chart.show(chart_options(series(self._points)))
        self._workers.show([(summary, worker) for worker in summary.workers])


_JOBS = (
    TableColumn(name="attempts", read=lambda job: job.attempts, number=True),
    TableColumn(name="pushed", label="pushed (UTC)", read=lambda job: job.created_at),
    TableColumn(
        name="workflow",
        loose=True,
        read=lambda job: job.workflow_id,
        href=lambda job: None if job.workflow_id is None else workflow_url(job.workflow_id),
    ),
    TableColumn(name="payload", loose=True, read=lambda job: short(job.payload, 40)),
    TableColumn(name="error", loose=True, read=lambda job: short(job.current_error, 40) if job.current_error else None),
)


async def _jobs(app: AppState, pool_id: str, status: str, after: str) -> None:
    """Show one page of jobs. Filter and page are in the URL, so that a link shows the same jobs."""
    statuses = (JobStatus(status),) if status in set(JobStatus) else ()
    cursor = JobId(after) if after else None

    async def read() -> Sequence[Job]:
        return await app.plane.pool(pool_id).list(statuses=statuses, after=cursor, limit=PAGE + 1)

    with ui.row().classes("w-full items-center"):
        heading("Jobs", 2)
        links(pool_id)
        ui.space()
        choices = {"": "all statuses", **JOB_STATUSES}
        ui.select(
            choices,
            value=status if statuses else "",
            label="Status",
            on_change=lambda e: ui.navigate.to(_url(pool_id, e.value)),
        ).props("outlined dense").classes("w-40")
    table = TableOrPlaceholder(
        PageTable("Jobs", (*job_columns(app.clock), *_JOBS), key=lambda job: job.job_id),
        ui.label("No matching jobs").classes("faint"),
    )
    next_link = _paging(pool_id, status, after)

    def show(found: Sequence[Job]) -> None:
        table.show(found[:PAGE])
        next_link.set_visibility(len(found) > PAGE)
        next_link.props["href"] = _url(pool_id, status, found[PAGE - 1].job_id) if len(found) > PAGE else ""

    async def refresh() -> None:
        show(await read())

    show(await read())
    refresh_every(REFRESH_SECONDS, refresh)


def _paging(pool_id: str, status: str, after: str) -> ui.link:
    """Add links to the first and the next page of jobs. Returns the link to the next page."""
    with ui.row().classes("w-full justify-end"):
        if after:
            ui.link("First page", _url(pool_id, status))
        return ui.link("Next page", _url(pool_id, status))


def _url(pool_id: str, status: str, after: str = "") -> str:
    query = urlencode({name: value for name, value in (("status", status), ("after", after)) if value})
    return f"/pools/{quote(pool_id, safe='')}" + (f"?{query}" if query else "")
