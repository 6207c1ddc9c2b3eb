"""The banner on a run's page: exceeded guardrails, no orchestrator, workers that do not start, or an unavailable store."""

from typing import Any

from nicegui import ui

from drumbeat.bench.model import LiveRun
from drumbeat.core.run import RunStatus
from drumbeat.web.pages.plain_words import capitalised
from drumbeat.web.snapshot_sections import guardrails


class Banner:
    """A line at the top of the page, hidden while there is nothing to report."""

    def __init__(self) -> None:
        self._row = ui.element("div").classes("rail").props("role=status aria-live=polite")
        with self._row:
            self._icon = ui.icon("warning").props("aria-hidden=true")
            self._text = ui.label()
        self._row.set_visibility(False)

    def show(self, watched: LiveRun) -> None:
        state = guardrails(watched)
        if watched.judgement.is_orphan and state["message"] is None:
            self._show_text(capitalised(watched.judgement.reason), "yellow", "person_off")
            return
        waiting = watched.run.custom_metrics.get("waiting") if watched.run.status is RunStatus.STARTING else None
        if waiting is not None and state["message"] is None:
            self._show_text(capitalised(waiting), "yellow", "hourglass_empty")
            return
        text = ": ".join(each for each in (state["message"], state["detail"]) if each)
        self._show_text(text or None, state["color"], state["icon"] or "warning")

    def warn(self, text: str) -> None:
        """Show ``text`` in the banner, as a warning that the page's data is out of date."""
        self._show_text(text, "grey", "cloud_off")

    def _show_text(self, text: str | None, colour: Any, icon: str) -> None:
        self._row.set_visibility(text is not None)
        if text is not None:
            self._text.text = text
            self._icon.name = icon
            self._row.classes(replace=f"rail {colour}")
