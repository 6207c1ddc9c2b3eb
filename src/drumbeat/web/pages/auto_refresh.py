"""What is shown anew while a page is open; where that cannot be read now, the page says so instead of looking alive."""

import logging
from collections.abc import Awaitable, Callable
from weakref import WeakKeyDictionary

from nicegui import Client, ui

from drumbeat.core.errors import DrumbeatError, StoreError

Shown = Callable[[], Awaitable[object]]

log = logging.getLogger(__name__)


class Outage:
    """Whether the store answers, as all pages together find it: its silence is logged once, and its return."""

    def __init__(self) -> None:
        self._is_on = False

    def note(self, error: DrumbeatError) -> None:
        if isinstance(error, StoreError) and not self._is_on:
            self._is_on = True
            log.warning("open pages show what was last known: %s", error)

    def over(self) -> None:
        if self._is_on:
            self._is_on = False
            log.info("open pages are renewed again")


class Notice:
    """One line above a page; not there while everything on it can be renewed."""

    def __init__(self) -> None:
        self._troubles: dict[object, str] = {}
        self._row = ui.element("div").classes("rail grey").props("role=status aria-live=polite")
        with self._row:
            ui.icon("cloud_off").props("aria-hidden=true")
            self._words = ui.label()
        self._row.set_visibility(False)

    def warn(self, of: object, error: DrumbeatError) -> None:
        said = "The store does not answer. " if isinstance(error, StoreError) else ""
        self._troubles[of] = f"{said}This is what was last known: {error}"
        self._tell()

    def clear(self, of: object) -> None:
        if self._troubles.pop(of, None) is not None:
            self._tell()

    def _tell(self) -> None:
        self._words.text = next(iter(self._troubles.values()), "")
        self._row.set_visibility(bool(self._troubles))


_outage = Outage()
_notices: WeakKeyDictionary[Client, Notice] = WeakKeyDictionary()


def add_notice() -> None:
    """A place on the page at hand where its troubles are told."""
    _notices[ui.context.client] = Notice()


def every(seconds: float, show: Shown, *, at_once: bool = False) -> ui.timer:
    """Have part of a page shown anew every few seconds, by what ``show`` reads."""
    notice = _notices[ui.context.client]

    async def again() -> None:
        await renewed(show, notice, _outage)

    return ui.timer(seconds, again, immediate=at_once)


async def renewed(show: Shown, notice: Notice, outage: Outage) -> None:
    """Show it, or say that it is old."""
    try:
        await show()
    except DrumbeatError as exc:
        outage.note(exc)
        notice.warn(show, exc)
    else:
        outage.over()
        notice.clear(show)
