"""The frame of every page: menu, dark mode, user, headings, empty states and errors."""

import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from importlib.resources import files
from itertools import groupby
from typing import Any

from nicegui import Client, ui

from drumbeat.core.errors import DrumbeatError
from drumbeat.settings import public_url
from drumbeat.web.app_state import AppState
from drumbeat.web.login import LOGOUT
from drumbeat.web.pages.actions import caller, show_session_ended
from drumbeat.web.pages.auto_refresh import add_notice
from drumbeat.web.pages.element_names import set_attribute, set_label
from drumbeat.web.problems import status_of
from drumbeat.web.roles import AuthMethod, Role

MENU = (  #: name, path, icon and group of each page
    ("Overview", "/", "space_dashboard", ""),
    ("Runs", "/runs", "speed", "Benchmarks"),
    ("Compare", "/compare", "balance", "Benchmarks"),
    ("Templates", "/templates", "description", "Benchmarks"),
    ("Pools", "/pools", "inventory_2", "Jobs and workers"),
    ("Fleets", "/fleet", "dns", "Jobs and workers"),
    ("Triggers", "/triggers", "bolt", "Jobs and workers"),
    ("Settings", "/settings", "settings", "Server"),
)
LOOK_COOKIE = "drumbeat_look"  #: stores light or dark; without it the browser's preference decides
_BUILD_TIMEOUT = 20.0  #: time limit for building a page, in seconds
_SESSION_CHECK_SECONDS = 2.0  #: how often an open page checks whether its session is still valid
_SWITCH_LOOK = f"""(() => {{
  const look = Quasar.Dark.isActive ? 'light' : 'dark';
  document.cookie = `{LOOK_COOKIE}=${{look}}; path=/; max-age=31536000; samesite=strict`;
  return look === 'dark';
}})()"""  #: stores the new look in a cookie before showing it, so that the next page has it too

_ROLES = {Role.READER: "read-only", Role.OPERATOR: "operator"}
Page = Callable[..., Awaitable[None]]

log = logging.getLogger(__name__)


def page(app: AppState, path: str, section: str) -> Callable[[Page], Page]:
    """Register a function that builds the page at ``path`` inside the frame (menu, user); its errors are shown on the page."""

    def register(build: Page) -> Page:
        @ui.page(path, title=f"{section} · Drumbeat", response_timeout=_BUILD_TIMEOUT)
        @wraps(build)
        async def framed(**params: Any) -> None:
            with frame(app, section):
                await _build(path, lambda: build(**params))

        return build

    return register


async def _build(path: str, build: Callable[[], Awaitable[None]]) -> None:
    """Build the content of a page. If that fails, the page shows the error; an unexpected error is also logged."""
    try:
        await build()
    except DrumbeatError as exc:
        ui.context.client.status_code = status_of(exc)
        error_card(str(exc))
    except Exception:
        log.exception("failed to build the page %s; it shows an error instead", path)
        ui.context.client.status_code = 500
        error_card("Unexpected error. See the server log.")


@contextmanager
def frame(app: AppState, section: str) -> Iterator[None]:
    """Add the frame (menu, user) of a page; elements created in the block are the content of the page."""
    ui.page_title(f"{section} · Drumbeat")
    drawer = ui.left_drawer(bordered=True).props("width=190 breakpoint=900 :no-swipe-open=true")
    content = ui.column().classes("w-full").props("tabindex=-1")
    with ui.header(elevated=False).classes("app-header items-center q-py-xs gap-2 no-wrap"):
        ui.link("Skip to content", content).classes("skip")
        ui.button(icon="menu", on_click=drawer.toggle).props('flat round color=white aria-label="Menu"')
        ui.link("Drumbeat", "/").classes("text-h6 no-underline")
        ui.space()
        _user(app)
        _dark_mode_switch()
    with drawer, ui.element("nav").props('aria-label="Pages"'), ui.list().classes("w-full"):
        for group, pages in groupby(_menu(), key=lambda each: each[3]):
            if group:
                ui.label(group).classes("text-caption faint q-px-md q-pt-sm")
            for name, path, icon, _ in pages:
                _menu_item(name, path, icon, active=name == section)
    with content:
        add_notice()
        yield


def _menu() -> list[tuple[str, str, str, str]]:
    """Return the menu entries whose page is registered."""
    known = set(Client.page_routes.values())
    return [each for each in MENU if each[1] in known]


def _menu_item(name: str, path: str, icon: str, *, active: bool) -> None:
    item = ui.item().props("clickable" + (' active aria-current="page"' if active else ""))
    with set_attribute(item, "href", path):
        with ui.item_section().props("avatar").style("min-width: 36px"):
            ui.icon(icon).props("aria-hidden=true")
        with ui.item_section():
            ui.item_label(name)


def _user(app: AppState) -> None:
    """Add the store's name, the user's role and the logout button to the header."""
    user = caller()
    ui.label(f"Store: {store_name(app)}").classes("text-caption hide-on-phone ellipsis").style("max-width: 40vw")
    role = _ROLES[user.role]
    set_label(ui.label(role).classes("text-caption"), f"Your role: {role}")
    if user.means is AuthMethod.SESSION:
        _watch_session()
        with set_attribute(ui.element("form").props("method=post"), "action", LOGOUT):
            ui.button("Log out").props("flat dense no-caps color=white type=submit size=sm")


def _watch_session() -> None:
    """Clear the page when the session ends: after a logout in another tab, or after its maximum age."""

    def check() -> None:
        if not caller().is_valid():
            timer.cancel()
            show_session_ended()

    timer = ui.timer(_SESSION_CHECK_SECONDS, check, immediate=False)


def store_name(app: AppState) -> str:
    """Return the store's URL without its password."""
    return public_url(app.plane.settings.store) or app.plane.store.traits.name


def _dark_mode_switch() -> None:
    saved = ui.context.client.request.cookies.get(LOOK_COOKIE)
    dark = ui.dark_mode({"light": False, "dark": True}.get(saved or ""))

    async def toggle() -> None:
        dark.value = await ui.run_javascript(_SWITCH_LOOK)

    ui.button(icon="contrast", on_click=toggle).props('flat round color=white aria-label="Toggle dark mode"')


def heading(text: str, level: int = 1) -> ui.label:
    """Add a heading that screen readers recognise."""
    size = {1: "text-h5", 2: "text-h6"}.get(level, "text-subtitle1 text-weight-medium")
    return set_attribute(ui.label(text).classes(size).props("role=heading"), "aria-level", level)


def breadcrumbs(*links: tuple[str, str]) -> None:
    """Add links to the parent pages; each link is a name and a path."""
    with ui.element("nav").props('aria-label="Breadcrumb"').classes("text-caption"):
        for name, path in links:
            ui.link(name, path)
            ui.label("›").classes("inline q-mx-xs").props("aria-hidden=true")


FIRST_RUN = """\
drumbeat bench examples
drumbeat bench prepare sqlite:///target.db --workload mixed
drumbeat bench run examples/find-max.yaml"""  #: commands for a first run, from any folder


def empty_state(text: str, command: str = "") -> ui.card:
    """Add a placeholder for missing data: ``text`` says what to do first, ``command`` is the command for it."""
    with ui.card().props("flat bordered").classes("w-full items-center q-pa-lg") as card:
        ui.label(text).classes("text-center")
        if command:
            with ui.element("pre").classes("q-pa-sm rounded border max-w-full").props("tabindex=0"):
                ui.label(command).classes("font-mono")
    return card


def error_card(text: str) -> None:
    """Show an error instead of a page that cannot be built."""
    with ui.card().props("flat bordered role=alert").classes("w-full q-pa-lg"):
        heading("Cannot show this page")
        ui.label(text)
        ui.link("Overview", "/")


def page_head() -> str:
    """Return the style sheet and script for the head of every page."""
    style, script = (files("drumbeat.web.pages").joinpath(f"look.{each}").read_text(encoding="utf-8") for each in ("css", "js"))
    return f"<style>{style}</style><script>{script}</script>"
