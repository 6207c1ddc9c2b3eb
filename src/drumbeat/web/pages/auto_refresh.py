"""Refreshes parts of an open page every few seconds; if reading fails, the page says that its data is old."""

import logging
from collections.abc import Awaitable, Callable
from weakref import WeakKeyDictionary

from nicegui import Client, ui

from drumbeat.core.errors import DrumbeatError, StoreError

Refresh = Callable[[], Awaitable[object]]

log = logging.getLogger(__name__)


class Outage:
    """Logs the beginning and the end of a store outage once, not for each open page."""

    def __init__(self) -> None:
        self._is_on = False

    def note(self, error: DrumbeatError) -> None:
        if isinstance(error, StoreError) and not self._is_on:
            self._is_on = True
            log.warning("failed to refresh open pages: %s; they show old data; retrying", error)

    def end(self) -> None:
        if self._is_on:
            self._is_on = False
            log.info("the store answers again; open pages show current data")


class Notice:
    """A warning line at the top of a page, visible while part of the page cannot be refreshed."""

    def __init__(self) -> None:
        self._errors: dict[object, str] = {}
        self._row = ui.element("div").classes("rail grey").props("role=status aria-live=polite")
        with self._row:
            ui.icon("cloud_off").props("aria-hidden=true")
            self._text = ui.label()
        self._row.set_visibility(False)

    def warn(self, of: object, error: DrumbeatError) -> None:
        what = "Store unavailable" if isinstance(error, StoreError) else "Refresh failed"
        self._errors[of] = f"{what}, showing old data: {error}"
        self._show()

    def clear(self, of: object) -> None:
        if self._errors.pop(of, None) is not None:
            self._show()

    def _show(self) -> None:
        self._text.text = next(iter(self._errors.values()), "")
        self._row.set_visibility(bool(self._errors))


_outage = Outage()
_notices: WeakKeyDictionary[Client, Notice] = WeakKeyDictionary()


def add_notice() -> None:
    """Add a hidden warning line to the current page; it appears while the page cannot be refreshed and shows old data."""
    _notices[ui.context.client] = Notice()


def refresh_every(seconds: float, show: Refresh, *, at_once: bool = False) -> ui.timer:
    """Call ``show`` every few seconds to refresh a part of the current page; ``at_once``: the first time immediately."""
    notice = _notices[ui.context.client]

    async def tick() -> None:
        await refresh(show, notice, _outage)

    return ui.timer(seconds, tick, immediate=at_once)


async def refresh(show: Refresh, notice: Notice, outage: Outage) -> None:
    """Call ``show`` once to refresh a part of the current page; if it fails, warn that the page shows old data."""
    try:
        await show()
    except DrumbeatError as exc:
        outage.note(exc)
        notice.warn(show, exc)
    else:
        outage.end()
        notice.clear(show)
