"""A run's page: live while it is under way, its result afterwards; everything on it comes from the store and the URL."""

from collections.abc import Sequence
from contextlib import suppress

from nicegui import ui

from drumbeat.bench.model import Watched
from drumbeat.core.errors import MissingExtra
from drumbeat.core.run import RUN_ENDED, RunId
from drumbeat.web.app_state import AppState
from drumbeat.web.feeds import Frame, Line
from drumbeat.web.feeds_run import RunSource, run_feed
from drumbeat.web.pages.frame import page, trouble
from drumbeat.web.pages.run_live.banner import Banner
from drumbeat.web.pages.run_live.charts import RunCharts
from drumbeat.web.pages.run_live.figures import FigureTiles, Objectives
from drumbeat.web.pages.run_live.heading import Heading
from drumbeat.web.pages.run_live.log_panel import LogPanel, RunDecisions
from drumbeat.web.pages.run_live.panels import mode_panel
from drumbeat.web.pages.run_live.progress import Progress
from drumbeat.web.pages.run_live.style import LOOK
from drumbeat.web.pages.run_live.workers import WorkerGrid
from drumbeat.web.pages.run_result import RunResult


def add(house: AppState) -> None:
    ui.add_css(LOOK, shared=True)
    with suppress(MissingExtra):
        house.plane.bench()  # imported now, not by whoever comes first

    @page(house, "/runs/{run_id}", "Runs")
    async def run_page(run_id: str) -> None:
        await house.plane.store.runs.get(RunId(run_id))
        feed, source = run_feed(house.feeds, house.plane, RunId(run_id))
        listener = feed.subscribe()
        client = ui.context.client
        client.on_delete(listener.close)
        first = await listener.next()
        if first is None or first.told.seen is None:
            trouble(str(first.told.data.get("message")) if first else "The server is leaving; load the page again.")
            return
        ui.page_title(f"{first.told.seen.run.name or run_id} · Drumbeat")
        view = RunPage(house, source, first.told.seen)
        view.log(listener.lines(first))

        def tick() -> None:
            if not client.has_socket_connection:
                return  # nobody looks now; whoever comes back is shown everything at once
            while (frame := listener.take()) is not None:
                view.take(frame)
                view.log(listener.lines(frame))
            view.tick()
            if view.is_complete:
                timer.cancel()

        timer = ui.timer(1.0, tick)


class RunPage:
    """All parts of one page about a run."""

    def __init__(self, house: AppState, source: RunSource, seen: Watched) -> None:
        self._source = source
        self._ended = False
        self._banner = Banner()
        self._heading = Heading(house, seen)
        self._progress = Progress(house.clock)
        self._panel = mode_panel(seen.plan)
        self._figures = FigureTiles()
        self._objectives = Objectives()
        self._result = RunResult(house, seen.run.run_id)
        self._charts = RunCharts(seen.plan)
        self._workers = WorkerGrid(house, seen.run.run_id)
        self._decisions = RunDecisions()
        self._logs = LogPanel()
        self._show(seen)
        self._decisions.show(seen.decisions)

    @property
    def is_complete(self) -> bool:
        """Whether nothing more can come."""
        return self._ended and self._source.course().complete

    def take(self, frame: Frame[Watched]) -> None:
        """What is new; or that nothing can be known now."""
        if frame.told.seen is None:
            self._banner.warn(f"This is what was last known. {frame.told.data.get('message', '')}")
            return
        self._show(frame.told.seen)

    def log(self, lines: Sequence[Line]) -> None:
        """Log lines that were not shown yet."""
        self._logs.add(lines)

    def _show(self, seen: Watched) -> None:
        parts = (self._banner, self._heading, self._progress, self._figures, self._objectives, self._workers)
        for part in parts:
            part.show(seen)
        if self._panel is not None:
            self._panel.show(seen)
        if seen.run.status in RUN_ENDED:
            self._ended = True
            self._result.show(seen)

    def tick(self) -> None:
        """Once a second: timers go on, and lines that have been read are drawn."""
        self._progress.tick()
        course = self._source.course()
        self._charts.show(course.curves)
        self._decisions.show(course.decisions)
        if self._ended:
            self._result.show_course(course)
