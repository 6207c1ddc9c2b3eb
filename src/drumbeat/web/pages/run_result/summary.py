"""An ended run in words: Drumbeat's summary of its figures and, in a card of its own, a language model's explanation."""

from nicegui import ui

from drumbeat.bench.model import LiveRun, RunExplanation, stored_explanation
from drumbeat.core.run import RunId
from drumbeat.web.app_state import AppState
from drumbeat.web.pages.actions import button, may_change, notify
from drumbeat.web.pages.element_names import set_label

_EXPLAIN = "Explain with a language model"


class RunSummary:
    """Two cards: a run's summary, and its explanation by a language model. Both are hidden until the run has ended."""

    def __init__(self, app: AppState, run_id: RunId) -> None:
        self._app, self._run_id = app, run_id
        self._shown: tuple[str, ...] = ()
        self._explanation: RunExplanation | None = None
        self._card = _card("Summary")
        with self._card:
            self._sentences = ui.column().classes("gap-1")
        self._other_card = _card("Explanation by a language model (AI)")
        with self._other_card:
            self._words = ui.column().classes("gap-1 w-full")
            self._ask = button(_EXPLAIN, self._write, "notes") if app.plane.settings.language_model else None
        self._may_ask = self._ask is not None and may_change()

    def show(self, watched: LiveRun) -> None:
        """Show the summary of an ended run and, if one is stored, its explanation by a language model."""
        if watched.summary and watched.summary != self._shown:
            self._shown = watched.summary
            self._sentences.clear()
            with self._sentences:
                for sentence in watched.summary:
                    ui.label(sentence)
        if (stored := stored_explanation(watched.run)) is not None and self._explanation is None:
            self._show_words(stored)
        self._card.set_visibility(bool(self._shown))
        self._other_card.set_visibility(self._may_ask or self._explanation is not None)

    def _show_words(self, explanation: RunExplanation) -> None:
        self._explanation = explanation
        self._words.clear()
        with self._words:
            ui.label(explanation.label).classes("text-weight-medium")
            with ui.column().classes("gap-1 faint").props('role=note aria-label="Text"'):
                for line in explanation.text.splitlines():
                    ui.label(line)
            if explanation.warning:
                ui.label(explanation.warning).classes("text-weight-medium")

    async def _write(self) -> None:
        if self._ask is not None:
            self._ask.disable()
        try:
            self._show_words(await self._app.plane.bench().explain(self._run_id))
        finally:
            if self._ask is not None:
                self._ask.enable()
        notify("The language model has explained the run.")


def _card(title: str) -> ui.card:
    """Add a card with a heading, hidden at first."""
    card = set_label(ui.card().props("flat bordered role=region").classes("w-full"), title)
    with card:
        ui.label(title).classes("text-h6").props("role=heading aria-level=2")
    card.set_visibility(False)
    return card
