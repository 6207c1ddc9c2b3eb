"""One pool of jobs: how deep it is, how fast it empties, who works on it, and its jobs."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote, urlencode

from nicegui import ui

from drumbeat.core.beat import Beat
from drumbeat.core.job import Job, JobId, JobStatus, counted
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import judge, silence
from drumbeat.web.app_state import AppState
from drumbeat.web.pages.actions import button, confirmed, say
from drumbeat.web.pages.auto_refresh import every
from drumbeat.web.pages.components import FigureTile, Filled, PageTable, Series, TableColumn, chart, chart_options, short, tiles
from drumbeat.web.pages.frame import heading, page, trail
from drumbeat.web.pages.incremental_charts import GrowingChart
from drumbeat.web.pages.overview import EVERY, PoolSummary, standing
from drumbeat.web.pages.pools_push import push_form

PAGE = 25
_SPAN = timedelta(hours=1)
_RATED = timedelta(minutes=1)
_POINTS = 1800

_WORKERS = (
    TableColumn(name="worker", read=lambda row: row[1].worker_id),
    TableColumn(name="status", read=lambda row: row[1].status, is_status=True),
    TableColumn(name="health", read=lambda row: judge(row[1], row[0].now, row[0].pool.thresholds), is_status=True),
    TableColumn(name="silent", label="last heard", read=lambda row: silence(row[1], row[0].now), number=True),
    TableColumn(name="jobs", read=lambda row: row[1].active, number=True),
    TableColumn(name="host", read=lambda row: row[1].host),
)


_TILES: Mapping[str, Callable[[PoolSummary], object]] = {
    "Ready": lambda seen: counted(seen.counts.ready),
    "Oldest waits": lambda seen: seen.oldest_waits,
    "Delayed": lambda seen: counted(seen.counts.delayed),
    "In work": lambda seen: counted(seen.counts.claimed),
    "Done": lambda seen: seen.counts.done,
    "Poisoned": lambda seen: seen.counts.poisoned,
    "Cancelled": lambda seen: seen.counts.cancelled,
    "Finished a minute": lambda seen: None,
    "Paused": lambda seen: seen.is_paused,
}


def per_minute(finished: Sequence[tuple[datetime, int]]) -> float | None:
    """Jobs that ended a minute, by the first and the last look; None: there is only one."""
    (since, before), (until, after) = finished[0], finished[-1]
    minutes = (until - since) / timedelta(minutes=1)
    return max(after - before, 0) / minutes if minutes > 0 else None


@dataclass(frozen=True, slots=True)
class Point:
    """How a pool stood at one moment."""

    at: datetime
    ready: int | None
    claimed: int | None
    workers: int | None


def point_of(beat: Beat) -> Point | None:
    """What a controller saw: a fleet's view has a queue, a checker's its counts."""
    view: Any = beat.view
    if view is None:
        return None
    queue = view.get("queue") or view
    living = [each for each in view.get("workers", ()) if each.get("status") not in ("terminated", "error", "lost")]
    return Point(beat.at, queue.get("ready"), queue.get("claimed"), len(living))


def series(points: Any) -> Series:
    return {
        "ready": [(each.at, each.ready) for each in points],
        "in work": [(each.at, each.claimed) for each in points],
        "workers": [(each.at, each.workers) for each in points],
    }


def add(house: AppState) -> None:
    @page(house, "/pools/{pool_id}", "Pools")
    async def pool(pool_id: str, status: str = "", after: str = "") -> None:
        await house.plane.pool(pool_id).get()
        trail(("Pools", "/pools"))
        with ui.row().classes("w-full items-center"):
            heading(pool_id)
            ui.space()
            _deeds(house, pool_id)
        shown = _Shown(await standing(house, await house.plane.store.pools.get(PoolId(pool_id))))
        await shown.begin(house)
        await _jobs(house, pool_id, status, after)
        every(EVERY, lambda: shown.again(house))


def _deeds(house: AppState, pool_id: str) -> None:
    desk = house.plane.pool(pool_id)

    async def pause() -> None:
        await desk.pause()
        say(f"{pool_id} is paused: what runs goes on, nothing new is claimed.")

    async def resume() -> None:
        await desk.resume()
        say(f"{pool_id} goes on.")

    async def push() -> None:
        pushed = await push_form(house, pool_id)
        if pushed is not None:
            say(f"Job {pushed.job_id} is in {pool_id}.")

    async def requeue() -> None:
        if await confirmed(f"Have every poisoned job of {pool_id} tried again?", "Requeue all"):
            ids = await desk.requeue()
            say(f"Requeued {len(ids)} jobs.")
            ui.navigate.reload()

    button("Push a job", push, icon="add")
    button("Pause", pause, icon="pause")
    button("Resume", resume, icon="play_arrow")
    button("Requeue poisoned", requeue, icon="replay")


class _Shown:
    """Figures, chart and workers, shown anew every few seconds."""

    def __init__(self, first: PoolSummary) -> None:
        self._pool = first.pool
        self._points: deque[Point] = deque(maxlen=_POINTS)
        self._finished: deque[tuple[datetime, int]] = deque()  #: jobs that had ended, by the looks of the last minute
        with tiles():
            self._tiles = {name: FigureTile(name) for name in _TILES}
        self._chart = GrowingChart(chart(f"Queue of {first.pool.pool_id} over the last hour", series(()), step=True))
        heading("Workers", 2)
        none = ui.label("No worker is live; start one with: drumbeat pool work NAME, or a trigger.").classes("faint")
        self._workers = Filled(PageTable("Workers", _WORKERS, key=lambda row: row[1].worker_id), none)

    async def begin(self, house: AppState) -> None:
        now = await house.plane.store.now()
        beats = await house.plane.store.beats.list(self._pool.pool_id, since=now - _SPAN, limit=_POINTS)
        self._points.extend(point for beat in beats if (point := point_of(beat)) is not None)
        await self.again(house)

    async def again(self, house: AppState) -> None:
        self._show(await standing(house, await house.plane.store.pools.get(self._pool.pool_id)))

    def _show(self, seen: PoolSummary) -> None:
        counts = seen.counts
        self._finished.append((seen.now, counts.done + counts.poisoned))
        while seen.now - self._finished[0][0] > _RATED:
            self._finished.popleft()
        for name, of in _TILES.items():
            self._tiles[name].show(of(seen))
        self._tiles["Finished a minute"].show(per_minute(self._finished))
        self._points.append(Point(seen.now, counts.ready, counts.claimed, len(seen.workers)))
        self._chart.show(chart_options(series(self._points), step=True))
        self._workers.show([(seen, worker) for worker in seen.workers])


_JOBS = (
    TableColumn(
        name="job",
        loose=True,
        read=lambda job: job.job_id,
        href=lambda job: f"/pools/{quote(job.pool_id, safe='')}/jobs/{quote(job.job_id, safe='')}",
    ),
    TableColumn(name="type", read=lambda job: job.type or None),
    TableColumn(name="status", read=lambda job: job.status, is_status=True),
    TableColumn(name="priority", read=lambda job: job.priority, number=True),
    TableColumn(name="attempts", read=lambda job: job.attempts, number=True),
    TableColumn(name="pushed", label="pushed (UTC)", read=lambda job: job.created_at),
    TableColumn(name="payload", loose=True, read=lambda job: short(job.payload, 40)),
    TableColumn(name="error", loose=True, read=lambda job: short(job.last_error, 40) if job.last_error else None),
)


async def _jobs(house: AppState, pool_id: str, status: str, after: str) -> None:
    """A page of jobs; which one is in the address, so that it can be linked to."""
    wanted = (JobStatus(status),) if status in set(JobStatus) else ()
    start = JobId(after) if after else None

    async def read() -> Sequence[Job]:
        return await house.plane.pool(pool_id).list(statuses=wanted, after=start, limit=PAGE + 1)

    with ui.row().classes("w-full items-center"):
        heading("Jobs", 2)
        ui.space()
        choices = {"": "every status", **{each.value: each.value for each in JobStatus}}
        ui.select(
            choices, value=status if wanted else "", label="Status", on_change=lambda e: ui.navigate.to(_at(pool_id, e.value))
        ).props("outlined dense").classes("w-40")
    shown = Filled(PageTable("Jobs", _JOBS, key=lambda job: job.job_id), ui.label("No such jobs.").classes("faint"))
    further = _paging(pool_id, status, after)

    def show(found: Sequence[Job]) -> None:
        shown.show(found[:PAGE])
        further.set_visibility(len(found) > PAGE)
        further.props["href"] = _at(pool_id, status, found[PAGE - 1].job_id) if len(found) > PAGE else ""

    async def again() -> None:
        show(await read())

    show(await read())
    every(EVERY, again)


def _paging(pool_id: str, status: str, after: str) -> ui.link:
    """Ways to other pages; answers with the one to the next."""
    with ui.row().classes("w-full justify-end"):
        if after:
            ui.link("First page", _at(pool_id, status))
        return ui.link("Next page", _at(pool_id, status))


def _at(pool_id: str, status: str, after: str = "") -> str:
    asked = urlencode({name: value for name, value in (("status", status), ("after", after)) if value})
    return f"/pools/{quote(pool_id, safe='')}" + (f"?{asked}" if asked else "")
