"""The dashboard: pages in Python, without a build step and without anything from other hosts."""

from fastapi import FastAPI
from nicegui import ui

from drumbeat.web.house import House
from drumbeat.web.pages import overview

PAGES = (overview,)  #: each has ``add(house)``, which registers its routes


def add_pages(app: FastAPI, house: House) -> None:
    """Serve every page from ``app``."""
    for page in PAGES:
        page.add(house)
    ui.run_with(app, title="Drumbeat", favicon="🥁", dark=None, language="en-US", show_welcome_message=False)
