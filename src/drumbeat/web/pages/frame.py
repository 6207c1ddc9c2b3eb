"""What is around every page: the way between pages, light and dark, who is there, and words for what is not there yet."""

import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from importlib.resources import files
from typing import Any

from nicegui import Client, ui

from drumbeat.core.errors import DrumbeatError
from drumbeat.settings import public_url
from drumbeat.web.app_state import AppState
from drumbeat.web.login import LOGOUT
from drumbeat.web.pages.actions import caller, show_out
from drumbeat.web.pages.auto_refresh import add_notice
from drumbeat.web.pages.element_names import called, given
from drumbeat.web.problems import status_of
from drumbeat.web.roles import Means

PLACES = (
    ("Overview", "/", "space_dashboard"),
    ("Runs", "/runs", "speed"),
    ("Compare", "/compare", "balance"),
    ("Templates", "/templates", "description"),
    ("Pools", "/pools", "inventory_2"),
    ("Fleet", "/fleet", "dns"),
    ("Triggers", "/triggers", "bolt"),
    ("Settings", "/settings", "settings"),
)
LOOK_COOKIE = "drumbeat_look"  #: light or dark; without it, as the browser likes
_PATIENCE = 20.0  #: seconds a page may take to be made
_ASKED_EVERY = 2.0  #: seconds between two looks at whether a session goes on
_KEEP = "; path=/; max-age=31536000; samesite=strict'"
_KEEP_DARK = f"document.cookie = '{LOOK_COOKIE}=dark{_KEEP}"
_KEEP_LIGHT = f"document.cookie = '{LOOK_COOKIE}=light{_KEEP}"

Page = Callable[..., Awaitable[None]]

log = logging.getLogger(__name__)


def page(house: AppState, path: str, place: str) -> Callable[[Page], Page]:
    """Registers what makes a page: it is made within its frame, and errors of ours are told on it."""

    def register(build: Page) -> Page:
        @ui.page(path, title=f"{place} · Drumbeat", response_timeout=_PATIENCE)
        @wraps(build)
        async def framed(**given: Any) -> None:
            with frame(house, place):
                await _built(path, lambda: build(**given))

        return build

    return register


async def _built(path: str, build: Callable[[], Awaitable[None]]) -> None:
    """Make a page; what goes wrong is told on it, and what nobody foresaw in the log alone."""
    try:
        await build()
    except DrumbeatError as exc:
        ui.context.client.status_code = status_of(exc)
        trouble(str(exc))
    except Exception:
        log.exception("the page %s could not be made", path)
        ui.context.client.status_code = 500
        trouble("It failed in a way nobody foresaw; the server's log says how.")


@contextmanager
def frame(house: AppState, place: str) -> Iterator[None]:
    """A page's frame; what is made in the block is the page. It says its own heading with ``heading``."""
    ui.page_title(f"{place} · Drumbeat")
    drawer = ui.left_drawer(bordered=True).props("width=190 breakpoint=900 :no-swipe-open=true")
    content = ui.column().classes("w-full").props("tabindex=-1")
    with ui.header(elevated=False).classes("house-header items-center q-py-xs gap-2 no-wrap"):
        ui.link("Skip to content", content).classes("skip")
        ui.button(icon="menu", on_click=drawer.toggle).props('flat round color=white aria-label="Menu"')
        ui.link("Drumbeat", "/").classes("text-h6 no-underline")
        ui.space()
        _whose(house)
        _look_switch()
    with drawer, ui.element("nav").props('aria-label="Pages"'), ui.list().classes("w-full"):
        for name, path, icon in _ways():
            _way(name, path, icon, here=name == place)
    with content:
        add_notice()
        yield


def _ways() -> list[tuple[str, str, str]]:
    """The pages there are."""
    known = set(Client.page_routes.values())
    return [each for each in PLACES if each[1] in known]


def _way(name: str, path: str, icon: str, *, here: bool) -> None:
    way = ui.item().props("clickable" + (' active aria-current="page"' if here else ""))
    with given(way, "href", path):
        with ui.item_section().props("avatar").style("min-width: 36px"):
            ui.icon(icon).props("aria-hidden=true")
        with ui.item_section():
            ui.item_label(name)


def _whose(house: AppState) -> None:
    """Which store this is, who looks at it, and the way out."""
    who = caller()
    ui.label(store_name(house)).classes("text-caption hide-on-phone ellipsis").style("max-width: 40vw")
    called(ui.label(str(who.role)).classes("text-caption"), f"You are {who.role}")
    if who.means is Means.SESSION:
        _watch_session()
        with given(ui.element("form").props("method=post"), "action", LOGOUT):
            ui.button("Log out").props("flat dense no-caps color=white type=submit size=sm")


def _watch_session() -> None:
    """Whoever has logged out in another tab, or was here for too long, sees nothing more here."""

    def ask() -> None:
        if not caller().is_here():
            timer.cancel()
            show_out()

    timer = ui.timer(_ASKED_EVERY, ask, immediate=False)


def store_name(house: AppState) -> str:
    """The store without its secrets."""
    return public_url(house.plane.settings.store) or house.plane.store.traits.name


def _look_switch() -> None:
    kept = ui.context.client.request.cookies.get(LOOK_COOKIE)
    dark = ui.dark_mode({"light": False, "dark": True}.get(kept or ""))

    async def turn() -> None:
        dark.value = not await ui.run_javascript("Quasar.Dark.isActive")
        ui.run_javascript(_KEEP_DARK if dark.value else _KEEP_LIGHT)

    ui.button(icon="contrast", on_click=turn).props('flat round color=white aria-label="Light or dark"')


def heading(words: str, level: int = 1) -> ui.label:
    """A heading, for eyes and for screen readers."""
    size = {1: "text-h5", 2: "text-h6"}.get(level, "text-subtitle1 text-weight-medium")
    return given(ui.label(words).classes(size).props("role=heading"), "aria-level", level)


def trail(*ways: tuple[str, str]) -> None:
    """The way back up: names and paths."""
    with ui.element("nav").props('aria-label="Way back"').classes("text-caption"):
        for name, path in ways:
            ui.link(name, path)
            ui.label("›").classes("inline q-mx-xs").props("aria-hidden=true")


FIRST_RUN = """\
drumbeat bench examples
drumbeat bench prepare sqlite:///target.db --workload mixed
drumbeat bench run examples/find-max.yaml"""  #: the way to a first run, from any folder


def empty(words: str, command: str = "") -> ui.card:
    """What to do first, where there is nothing to show."""
    with ui.card().props("flat bordered").classes("w-full items-center q-pa-lg") as card:
        ui.label(words).classes("text-center")
        if command:
            with ui.element("pre").classes("q-pa-sm rounded border max-w-full").props("tabindex=0"):
                ui.label(command).classes("font-mono")
    return card


def trouble(words: str) -> None:
    """Something that is not there, or cannot be had now."""
    with ui.card().props("flat bordered role=alert").classes("w-full q-pa-lg"):
        heading("This cannot be shown")
        ui.label(words)
        ui.link("Overview", "/")


def page_head() -> str:
    """What every page's head adds: a style sheet, and a little script."""
    style, script = (files("drumbeat.web.pages").joinpath(f"look.{each}").read_text(encoding="utf-8") for each in ("css", "js"))
    return f"<style>{style}</style><script>{script}</script>"
