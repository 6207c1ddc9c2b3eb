"""What operators may do on each page, and that readers are offered none of it."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page

from drumbeat.composition.plane import ControlPlane
from web.pages.browsing import browsing, check_accessible, opened
from web.pages.conftest import READ_TOKEN, TOKEN
from web.pages.run_recorded import recorded
from web.pages.scene import build, triggers_yml
from web.pages.served import KEY, Served, filled, serving

ENDED = "run-ended"
OFFERED: dict[tuple[str, str], Sequence[str]] = {
    ("/runs", "Runs"): ("New run", "Run again (create a copy)", "Delete"),
    ("/runs/run-1", "used once"): ("Stop",),
    (f"/runs/{ENDED}", "an ended run"): ("Run again (create a copy)", "Delete", "Retry database statistics"),
    ("/templates/new", "New template"): ("Save", "Preview SQL", "Preview run plan"),
    ("/templates", "Templates"): ("New template", "Create run used once", "Copy used once", "Delete used once"),
    ("/triggers", "Triggers"): ("Fire now nightly", "Fire now yearly-mail"),
    ("/pools", "Pools"): ("Push a job",),
    ("/pools/mail", "mail"): ("Push a job", "Pause", "Resume", "Requeue poisoned jobs"),
    ("/fleet", "Fleet"): ("New fleet",),
    ("/fleet/render", "render"): ("Drain", "Kill", "Preview next decision"),
    ("/fleet/render/policy", "Policy of render"): ("Save",),
    ("/settings", "Settings"): ("Add a connection", "Set default prices"),
}
READING = (
    "Menu", "Toggle dark mode", "Log out", "Compare", "Previous", "Next", "Download report", "worker-0", "Expand", "Collapse",
    "Select", "List", "Simulate", "Records per page", "Form", "YAML", "Objectives (SLO)", "Advanced settings",
)  # fmt: skip
_BUTTONS = """() => [...document.querySelectorAll('button, [role=button], a.q-btn')]
  .filter(each => each.checkVisibility())
  .map(each => (each.getAttribute('aria-label') || each.innerText).trim()).filter(name => name)"""


async def furnish(plane: ControlPlane) -> None:
    await build(plane)
    await recorded(plane, ENDED, "an ended run", seconds=5)


@pytest.fixture(scope="module")
async def locked(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    folder: Path = tmp_path_factory.mktemp("locked")
    triggers_yml(folder)
    store = await filled(folder, furnish)
    tokens = {"DRUMBEAT_TOKEN": TOKEN, "DRUMBEAT_READ_TOKEN": READ_TOKEN, "DRUMBEAT_KEY": KEY}
    with serving(folder, store, "--no-conduct", **tokens) as server:
        yield server


async def logged_in(page: Page, token: str) -> None:
    await page.goto("/")
    await page.get_by_label("Token").fill(token)
    await page.keyboard.press("Enter")
    await page.get_by_role("heading", name="Overview").wait_for()


async def offered(page: Page, path: str, heading: str) -> list[str]:
    """The names of all buttons that are to be seen."""
    await opened(page, path, heading)
    await page.wait_for_function("() => !document.querySelector('.q-skeleton, .q-spinner')")
    found: list[str] = await page.evaluate(_BUTTONS)
    return found


async def test_operators_are_offered_what_can_be_done_and_readers_none_of_it(browser: Browser, locked: Served) -> None:
    async with (
        browsing(browser, locked.address) as (operator, first),
        browsing(browser, locked.address) as (reader, second),
    ):
        first.expected.append("401")
        second.expected.append("401")
        await logged_in(operator, TOKEN)
        await logged_in(reader, READ_TOKEN)
        for (path, heading), names in OFFERED.items():
            seen = await offered(operator, path, heading)
            missing = [name for name in names if not any(each.endswith(name) or name in each for each in seen)]
            assert not missing, f"{path}: an operator is not offered {missing}, but {seen}"
            read = await offered(reader, path, heading)
            assert [each for each in read if not any(word in each for word in READING)] == [], path
        await check_accessible(reader)
