"""What must be seen at once: guardrails with metric, value and limit, a run nobody leads, a store that does not answer."""

from typing import Any

from nicegui import ui

from drumbeat.bench.model import Watched
from drumbeat.web.snapshot_sections import guardrails


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
        if seen.judgement.is_orphan and told["message"] is None:
            self._say(_sentence(seen.judgement.reason), "yellow", "person_off")
            return
        words = ": ".join(each for each in (told["message"], told["detail"]) if each)
        self._say(words or None, told["color"], told["icon"] or "warning")

    def warn(self, words: str) -> None:
        """The page shows what was last known."""
        self._say(words, "grey", "cloud_off")

    def _say(self, words: str | None, colour: Any, icon: str) -> None:
        self._row.set_visibility(words is not None)
        if words is not None:
            self._words.text = words
            self._icon.name = icon
            self._row.classes(replace=f"rail {colour}")


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]
