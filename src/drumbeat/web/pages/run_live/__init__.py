"""The page of a run: live while the run is active, its result afterwards. All its state is in the store and the URL."""

from collections.abc import Sequence
from contextlib import suppress

from nicegui import ui

from drumbeat.bench.model import LiveRun
from drumbeat.core.errors import MissingExtra
from drumbeat.core.run import RUN_ENDED, RunId
from drumbeat.web.app_state import AppState
from drumbeat.web.feeds import Frame, Line
from drumbeat.web.feeds_run import RunSource, run_feed
from drumbeat.web.pages.actions import warn
from drumbeat.web.pages.frame import error_card, page
from drumbeat.web.pages.run_live.banner import Banner
from drumbeat.web.pages.run_live.charts import RunCharts
from drumbeat.web.pages.run_live.figures import FigureTiles, Objectives
from drumbeat.web.pages.run_live.heading import Heading, template_name
from drumbeat.web.pages.run_live.log_panel import LogPanel, RunDecisions
from drumbeat.web.pages.run_live.panels import mode_panel
from drumbeat.web.pages.run_live.progress import Progress
from drumbeat.web.pages.run_live.style import LOOK
from drumbeat.web.pages.run_live.workers import WorkerGrid
from drumbeat.web.pages.run_result import RunResult
from drumbeat.web.pages.run_result.summary import RunSummary


def add(app: AppState) -> None:
    ui.add_css(LOOK, shared=True)
    with suppress(MissingExtra):
        app.plane.bench()  # import the bench now, so that the first page does not wait for it

    @page(app, "/runs/{run_id}", "Runs")
    async def run_page(run_id: str) -> None:
        await app.plane.store.runs.get(RunId(run_id))
        feed, source = run_feed(app.feeds, app.plane, RunId(run_id))
        listener = feed.subscribe()
        client = ui.context.client
        client.on_delete(listener.close)
        first = await listener.next()
        if first is None or first.told.seen is None:
            error_card(str(first.told.data.get("message")) if first else "The server is shutting down. Reload the page.")
            return
        ui.page_title(f"{first.told.seen.run.name or run_id} · Drumbeat")
        view = RunPage(app, source, first.told.seen, await template_name(app, first.told.seen.run.template_id))
        view.log(listener.lines(first))

        def tick() -> None:
            if not client.has_socket_connection:
                return  # the browser is disconnected; it gets all updates when it reconnects
            for warning in app.run_warnings.take(RunId(run_id)):
                warn(warning)
            while (frame := listener.take()) is not None:
                view.take(frame)
                view.log(listener.lines(frame))
            view.tick()
            if view.is_complete:
                timer.cancel()

        timer = ui.timer(1.0, tick)


class RunPage:
    """The page of a run with all its parts."""

    def __init__(self, app: AppState, source: RunSource, watched: LiveRun, template: str | None) -> None:
        self._source = source
        self._ended = False
        self._banner = Banner()
        self._heading = Heading(app, watched, template)
        self._summary = RunSummary(app, watched.run.run_id)
        self._progress = Progress(app.clock)
        self._panel = mode_panel(watched.plan)
        self._figures = FigureTiles()
        self._objectives = Objectives()
        self._result = RunResult(app, watched.run.run_id)
        self._charts = RunCharts(watched.plan)
        self._workers = WorkerGrid(app, watched.run.run_id)
        self._decisions = RunDecisions()
        self._logs = LogPanel()
        self._show(watched)
        self._decisions.show(watched.decisions)

    @property
    def is_complete(self) -> bool:
        """Whether the run has ended and all its data has been read."""
        return self._ended and self._source.series().complete

    def take(self, frame: Frame[LiveRun]) -> None:
        """Show a new update of the run on the page, or a warning if the store could not be read."""
        if frame.told.seen is None:
            self._banner.warn(f"Showing old data. {frame.told.data.get('message', '')}")
            return
        self._show(frame.told.seen)

    def log(self, lines: Sequence[Line]) -> None:
        """Add new lines to the log on the run's page."""
        self._logs.add(lines)

    def _show(self, watched: LiveRun) -> None:
        parts = (self._banner, self._heading, self._progress, self._figures, self._objectives, self._workers)
        for part in parts:
            part.show(watched)
        if self._panel is not None:
            self._panel.show(watched)
        if watched.run.status in RUN_ENDED:
            self._ended = True
            self._summary.show(watched)
            self._result.show(watched)

    def tick(self) -> None:
        """Advance the timers and draw new chart data. Called once a second."""
        self._progress.tick()
        course = self._source.series()
        self._charts.show(course.curves)
        self._decisions.show(course.decisions)
        if self._ended:
            self._result.show_errors_and_statistics(course)
