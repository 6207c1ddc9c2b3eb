"""The dashboard: pages in Python, without a build step and without anything from other hosts."""

from fastapi import FastAPI
from nicegui import ui

from drumbeat.web.app_state import AppState
from drumbeat.web.pages import compare, fleet, overview, pools, run_live, runs, settings, templates, triggers
from drumbeat.web.pages.frame import page_head

PAGES = (
    overview,
    runs,
    run_live,
    compare,
    templates,
    pools,
    fleet,
    triggers,
    settings,
)  #: each has ``add(house)``, which registers its routes


_KEPT_SECONDS = 60.0  #: a page that lost its connection for no longer comes back as it was, with what somebody typed


def add_pages(app: FastAPI, house: AppState) -> None:
    """Serve every page from ``app``."""
    ui.add_head_html(page_head(), shared=True)
    for page in PAGES:
        page.add(house)
    ui.run_with(
        app,
        title="Drumbeat",
        favicon="🥁",
        dark=None,
        language="en-US",
        show_welcome_message=False,
        tailwind=False,
        reconnect_timeout=_KEPT_SECONDS,
    )
