"""What is around every page: the way between pages, light and dark, and words for what is not there yet."""

from collections.abc import Iterator
from contextlib import contextmanager

from nicegui import ui

from drumbeat.web.house import House

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


@contextmanager
def frame(house: House, title: str) -> Iterator[None]:
    """A page's frame; what is made in the block is the page."""
    ui.page_title(f"{title} · Drumbeat")
    dark = ui.dark_mode()
    drawer = ui.left_drawer(bordered=True).props("width=200 breakpoint=800")
    with ui.header(elevated=False).classes("items-center q-py-xs"):
        ui.button(icon="menu", on_click=drawer.toggle).props('flat color=white aria-label="Menu"')
        ui.label("Drumbeat").classes("text-h6")
        ui.space()
        ui.button(icon="dark_mode", on_click=dark.toggle).props('flat color=white aria-label="Light or dark"')
    with drawer, ui.element("nav").props('aria-label="Pages"'), ui.list().classes("w-full"):
        for name, path, icon in PLACES:
            _way(name, path, icon, here=name == title)
    with ui.element("main").classes("w-full q-pa-sm"):
        ui.label(title).classes("text-h5").props("role=heading aria-level=1")
        yield


def _way(name: str, path: str, icon: str, *, here: bool) -> None:
    link = ui.link(target=path).classes("no-underline text-inherit block")
    if here:
        link.props('aria-current="page"')
    with link, ui.item().props("active" if here else ""):
        with ui.item_section().props("avatar"):
            ui.icon(icon).props("aria-hidden=true")
        with ui.item_section():
            ui.item_label(name)


def empty(words: str, command: str = "") -> None:
    """What to do first, where there is nothing to show."""
    with ui.card().props("flat bordered").classes("w-full items-center q-pa-lg"):
        ui.label(words)
        if command:
            ui.code(command, language="bash")
