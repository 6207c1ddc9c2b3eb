"""What must be seen at once: guardrails in the seed's words and colours, a store that does not answer, a run that is gone."""

from typing import Any

from nicegui import ui

from drumbeat.bench.model import Watched
from drumbeat.web.snapshot_parts import guardrails


class Banner:
    """One line above everything; not there while all is well."""

    def __init__(self) -> None:
        self._row = ui.element("div").classes("rail").props("role=status aria-live=polite")
        with self._row:
            self._icon = ui.icon("warning").props("aria-hidden=true")
            self._words = ui.label()
        self._row.set_visibility(False)

    def show(self, seen: Watched) -> None:
        told = guardrails(seen)
        self._say(told["message"], told["color"], told["icon"] or "warning")

    def warn(self, words: str) -> None:
        """The page shows what was last known."""
        self._say(words, "grey", "cloud_off")

    def _say(self, words: str | None, colour: Any, icon: str) -> None:
        self._row.set_visibility(words is not None)
        if words is not None:
            self._words.text = words
            self._icon.name = icon
            self._row.classes(replace=f"rail {colour}")
