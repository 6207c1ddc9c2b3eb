"""The dashboard: web pages written in Python. No build step; nothing is loaded from other hosts."""

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
)  #: each has ``add(app)``, which registers its routes
_RECONNECT_SECONDS = 60.0  #: a page that reconnects within this time keeps its state, including typed text


def add_pages(fastapi: FastAPI, app: AppState) -> None:
    """Register every page of the dashboard with the FastAPI application."""
    ui.add_head_html(page_head(), shared=True)
    for page in PAGES:
        page.add(app)
    ui.run_with(
        fastapi,
        title="Drumbeat",
        favicon="🥁",
        dark=None,
        language="en-US",
        show_welcome_message=False,
        tailwind=False,
        reconnect_timeout=_RECONNECT_SECONDS,
    )
