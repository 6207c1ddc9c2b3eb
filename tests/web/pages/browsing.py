"""A person at a browser: opens pages, looks for faults in them, keeps pictures."""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from playwright.async_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Error,
    Locator,
    Page,
    Request,
    Response,
    TimeoutError as NotInTime,
    ViewportSize,
    async_playwright,
    expect,
)

from servers.chromium import installation
from thorough import THOROUGH

PICTURES = Path(__file__).parents[3] / "artefacts" / "screenshots"
PHONE: ViewportSize = {"width": 390, "height": 844}
DESK: ViewportSize = {"width": 1280, "height": 800}
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE_MS = 90_000
CLOSING = 15.0  #: seconds for a page to be closed
SCHEMES: Mapping[Literal["light", "dark"], Literal["everything", "colours"]] = {"light": "everything", "dark": "colours"}
_OUR_OWN = ("data:", "blob:", "about:")
_AXE = (Path(__file__).parent / "faults.js").read_text(encoding="utf-8")
_FITS = "() => document.scrollingElement.scrollWidth <= document.scrollingElement.clientWidth"
_HERE = """() => {
    const e = document.activeElement;  // the body, or what scrolls, has the text of all within it, and takes no keys for them
    const label = (e.getAttribute('aria-label') || e.innerText || '').trim();
    return e.matches('a, button, input, select, textarea, [role]') ? label : '';
}"""


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """Debian's Chromium, for as long as the block lasts. Raises Unavailable."""
    found = installation()
    async with async_playwright() as playwright:
        around: dict[str, str | float | bool] = {**os.environ, **found.environment}
        browser = await playwright.chromium.launch(executable_path=found.program, args=list(ARGUMENTS), env=around)
        try:
            yield browser
        finally:
            await close(browser)


async def close(thing: Browser | BrowserContext | Page) -> None:
    """Close it, or leave it to the end of what it belongs to: amid a navigation closing is sometimes never answered."""
    with suppress(TimeoutError):
        async with asyncio.timeout(CLOSING):
            await thing.close()


class Watch:
    """Notes what a page must not do: errors on its console, requests to other hosts, answers that failed."""

    def __init__(self, page: Page, address: str) -> None:
        self._host = urlsplit(address).netloc
        self.faults: list[str] = []
        self.expected: list[str] = []  #: parts of messages that a test brings about on purpose
        self._page = page
        self._hears = {"console": self._heard, "pageerror": self._failed, "request": self._asked, "response": self._answered}
        for event, hear in self._hears.items():
            page.on(event, hear)  # type: ignore[call-overload]

    def stop(self) -> None:
        for event, hear in self._hears.items():
            self._page.remove_listener(event, hear)

    def _failed(self, error: Error) -> None:
        self.faults.append(f"page error: {error}")

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type == "error" or (message.type == "warning" and "Vue" in message.text):
            self.faults.append(f"console: {message.text}")

    def _asked(self, request: Request) -> None:
        if not request.url.startswith(_OUR_OWN) and urlsplit(request.url).netloc != self._host:
            self.faults.append(f"request to another host: {request.url}")

    def _answered(self, response: Response) -> None:
        if response.status >= 500:
            self.faults.append(f"{response.status} from {response.url}")

    def check(self) -> None:
        unexpected = [fault for fault in self.faults if not any(part in fault for part in self.expected)]
        assert not unexpected, "\n".join(unexpected)


@asynccontextmanager
async def new_context(browser: Browser, address: str, viewport: ViewportSize) -> AsyncIterator[BrowserContext]:
    """A browser with a cache and cookies of its own."""
    context = await browser.new_context(base_url=address, viewport=viewport, reduced_motion="reduce")
    context.set_default_timeout(PATIENCE_MS)
    try:
        yield context
    finally:
        await close(context)


@asynccontextmanager
async def tab(context: BrowserContext, address: str) -> AsyncIterator[tuple[Page, Watch]]:
    """A page, closed with the block; faults it had fail the block."""
    page = await context.new_page()
    watch = Watch(page, address)
    try:
        yield page, watch
    finally:
        await close(page)
    watch.check()


@asynccontextmanager
async def same_tab(context: BrowserContext, address: str) -> AsyncIterator[tuple[Page, Watch]]:
    """The context's first page, at a desk again; it stays open: loading ours into a new one takes nine times the CPU time."""
    page = context.pages[0] if context.pages else await context.new_page()
    await page.set_viewport_size(DESK)
    await page.emulate_media(color_scheme="light", reduced_motion="reduce")
    watch = Watch(page, address)
    try:
        yield page, watch
    finally:
        watch.stop()
    watch.check()


@asynccontextmanager
async def browsing(browser: Browser, address: str, viewport: ViewportSize | None = None) -> AsyncIterator[tuple[Page, Watch]]:
    """A page of a browser of its own; faults it had fail the block."""
    async with new_context(browser, address, viewport or DESK) as context, tab(context, address) as found:
        yield found


async def opened(page: Page, path: str, heading: str | None = None) -> None:
    """Go to a page and wait until it is there: its own heading shows and its socket is connected."""
    try:
        await page.goto(path)
    except Error as exc:
        if "net::ERR_ABORTED" not in str(exc):
            raise
        await page.goto(path)  # the page that the tab showed before was just loading another one
    await page.get_by_role("heading", name=heading, level=1).first.wait_for()
    await page.wait_for_function("() => window.socket === undefined || window.socket.connected")


async def followed(page: Page, link: Locator) -> None:
    """Click a link, again if need be, until it leads somewhere: a click into a table that is just renewed is lost."""
    before = page.url
    for _ in range(5):
        await link.click()
        with suppress(NotInTime):
            await page.wait_for_url(lambda url: url != before, timeout=PATIENCE_MS / 5, wait_until="commit")
            return
    raise AssertionError(f"expected {link} to lead away from {before}")


async def pressed(button: Locator, shows: Locator) -> None:
    """Press a button, again if need be, until something shows: a click while the page moves may miss the button."""
    for _ in range(5):
        await button.click()
        with suppress(NotInTime):
            await shows.wait_for(timeout=PATIENCE_MS / 5)
            return
    told = await button.page.get_by_role("alert").all_inner_texts()
    raise AssertionError(f"expected {button} to show {shows}, got these messages: {told}")


@cache
def axe() -> str:
    """axe-core as its Python package brings it."""
    return files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")


async def check_accessible(page: Page, what: Literal["everything", "colours"] = "everything") -> None:
    """axe finds no serious or critical fault; where it cannot tell a text's ground, contrast is measured without it."""
    if not await page.evaluate("() => 'axe' in window"):
        await page.evaluate(axe())
    found = await page.evaluate(_AXE, what)
    assert not found, "\n".join(found)


async def check_accessible_light_and_dark(page: Page) -> None:
    for scheme, what in SCHEMES.items():
        await page.emulate_media(color_scheme=scheme)
        await expect(page.locator(f"body.body--{scheme}")).to_have_count(1)
        await check_accessible(page, what)


async def check_fits(page: Page) -> None:
    """Nothing sticks out at the side, once the page has been laid out."""
    await page.wait_for_function(_FITS)


async def tabbed_to(page: Page, name: str, most: int = 60) -> None:
    """Press Tab until the element of this name has the focus."""
    passed = []
    for _ in range(most):
        await page.keyboard.press("Tab")
        passed.append(await page.evaluate(_HERE))
        if name in passed[-1]:
            return
    raise AssertionError(f"expected Tab to reach {name!r}, got {passed}")


async def picture(page: Page, name: str, *, full: bool = True) -> None:
    """Keep what the page looks like, as an artefact of make soak."""
    if not THOROUGH:
        return
    PICTURES.mkdir(parents=True, exist_ok=True)
    await page.screenshot(path=PICTURES / f"{name}.png", full_page=full, animations="disabled")
