"""The result of a run: data-quality warnings, cost, results by kind of operation, errors, database statistics."""

from nicegui import ui

from drumbeat.bench.model import LiveRun, RunSeries
from drumbeat.core.run import RunId
from drumbeat.web.app_state import AppState
from drumbeat.web.pages.run_result.caveats import caveats_card
from drumbeat.web.pages.run_result.closing import ResultActions
from drumbeat.web.pages.run_result.errors import Errors
from drumbeat.web.pages.run_result.kinds import kinds_table
from drumbeat.web.pages.run_result.server import Server
from drumbeat.web.snapshot import whole_result


class RunResult:
    """The part of a run's page that appears when the run has ended."""

    def __init__(self, app: AppState, run_id: RunId) -> None:
        self._app, self._run_id = app, run_id
        self._place = ui.column().classes("w-full")
        self._closing: ResultActions | None = None
        self._errors: Errors | None = None
        self._server: Server | None = None

    def show(self, watched: LiveRun) -> None:
        """Show a run's result when first called; later calls only update its cost and the status of its database statistics."""
        if self._closing is None:
            with self._place:
                self._build(watched)
        if self._closing is not None:
            self._closing.show(whole_result(watched))

    def _build(self, watched: LiveRun) -> None:
        caveats_card(whole_result(watched))
        self._closing = ResultActions(self._app, self._run_id)
        kinds_table(watched)
        self._errors = Errors(self._app, watched)
        self._server = Server(whole_result(watched))

    def show_errors_and_statistics(self, course: RunSeries) -> None:
        """Show the error examples and database statistics in ``course``, the run data that the server loads in steps."""
        if self._errors is not None and self._server is not None:
            self._errors.show(course.failures)
            self._server.show(course.server)
