"""What a run came to: what there is to doubt, kinds, a histogram, errors down to single ones, the server's figures, cost."""

from nicegui import ui

from drumbeat.bench.model import RunSeries, Watched
from drumbeat.core.run import RunId
from drumbeat.web.app_state import AppState
from drumbeat.web.pages.run_result.caveats import doubts_card
from drumbeat.web.pages.run_result.closing import Closing
from drumbeat.web.pages.run_result.errors import Errors
from drumbeat.web.pages.run_result.kinds import kinds_table
from drumbeat.web.pages.run_result.server import Server
from drumbeat.web.snapshot import whole_result


class RunResult:
    """The part of a run's page that is there once it has ended."""

    def __init__(self, house: AppState, run_id: RunId) -> None:
        self._house, self._run_id = house, run_id
        self._place = ui.column().classes("w-full")
        self._closing: Closing | None = None
        self._errors: Errors | None = None
        self._server: Server | None = None

    def show(self, seen: Watched) -> None:
        """Made once; what may still change is set anew."""
        if self._closing is None:
            with self._place:
                self._make(seen)
        if self._closing is not None:
            self._closing.show(whole_result(seen))

    def _make(self, seen: Watched) -> None:
        doubts_card(whole_result(seen))
        self._closing = Closing(self._house, self._run_id)
        kinds_table(seen)
        self._errors = Errors(self._house, seen)
        self._server = Server(whole_result(seen))

    def show_course(self, course: RunSeries) -> None:
        """What takes longer to read."""
        if self._errors is not None and self._server is not None:
            self._errors.show(course.failures)
            self._server.show(course.server)
