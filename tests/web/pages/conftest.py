"""Browser tests: one Chromium and one server for all of them.

``browser``  Debian's Chromium under Playwright, one a session
``served``   ``drumbeat serve`` on a store with something in it, one a session
``page``     a page of ``served``; any error on its console, or request to another host, fails the test
``guarded``  the same server again, with tokens: an operator's and a reader's
``reader``   a page of ``guarded`` for somebody who may look and change nothing
"""

from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser, BrowserContext, Page, expect

from servers.chromium import installation
from servers.debian import Unavailable
from web.pages.browsing import DESK, PATIENCE_MS, browsing, chromium, new_context, same_tab
from web.pages.scene import build, triggers_yml
from web.pages.served import KEY, Served, filled, serving

TOKEN, READ_TOKEN = "operator-operator-operator", "reader-reader-reader-reader"
expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="session")
async def browser() -> AsyncIterator[Browser]:
    try:
        installation()
    except Unavailable as exc:
        pytest.skip(f"Chromium is not available: {exc}")
    async with chromium() as started:
        yield started


@pytest.fixture(scope="session")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    triggers_yml(folder)
    store = await filled(folder, build)
    with serving(folder, store, "--no-conduct", DRUMBEAT_KEY=KEY) as server:
        yield server


@pytest.fixture(scope="session")
async def guarded(served: Served) -> AsyncIterator[Served]:
    tokens = {"DRUMBEAT_TOKEN": TOKEN, "DRUMBEAT_READ_TOKEN": READ_TOKEN, "DRUMBEAT_KEY": KEY}
    folder = served.folder / "guarded"
    folder.mkdir()
    triggers_yml(folder)
    with serving(folder, served.store, "--no-conduct", **tokens) as server:
        yield server


@pytest.fixture(scope="session")
async def desk(browser: Browser, served: Served) -> AsyncIterator[BrowserContext]:
    """A browser that keeps what it has loaded once, at a desk."""
    async with new_context(browser, served.address, DESK) as context:
        yield context


@pytest.fixture
async def page(desk: BrowserContext, served: Served) -> AsyncIterator[Page]:
    async with same_tab(desk, served.address) as (opened, _):
        yield opened


@pytest.fixture
async def reader(browser: Browser, guarded: Served) -> AsyncIterator[Page]:
    async with browsing(browser, guarded.address) as (opened, watch):
        watch.expected.append("401")
        await opened.goto("/")
        await opened.get_by_label("Token").fill(READ_TOKEN)
        await opened.keyboard.press("Enter")
        await opened.get_by_role("heading", name="Overview").wait_for()
        yield opened
