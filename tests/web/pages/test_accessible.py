"""What the checks for accessibility find in a browser, and that every dialog passes them, light and dark."""

from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser, Page, expect

from drumbeat.composition.plane import ControlPlane
from web.pages.browsing import browsing, check_accessible, check_accessible_light_and_dark, opened
from web.pages.run_recorded import recorded
from web.pages.served import Served, filled, serving

RUN = "run-dialogs"
PUSH = ("/pools/mail", "mail", "Push a job")
FAINT = "color: #bbbbbb !important; background: #ffffff !important"


async def build(plane: ControlPlane) -> None:
    await recorded(plane, RUN, "a run", seconds=5)


@pytest.fixture(scope="module")
async def with_a_run(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    folder = tmp_path_factory.mktemp("dialogs")
    store = await filled(folder, build)
    with serving(folder, store, "--no-conduct") as server:
        yield server


async def asked(page: Page, path: str, heading: str, button: str) -> None:
    """Press what opens a dialog, and wait until it is there and stands still."""
    await opened(page, path, heading)
    await page.get_by_role("button", name=button).first.click()
    await expect(page.locator(".q-dialog__inner > *")).to_be_visible()
    await page.wait_for_function("() => !document.querySelector('.q-dialog [class*=-active]')")


@pytest.mark.parametrize(
    ("path", "heading", "button"),
    [PUSH, ("/settings", "Settings", "Add a connection"), ("/fleet", "Fleet", "New fleet"), ("/runs", "Runs", "New run")],
)
async def test_a_dialog_is_accessible_light_and_dark(page: Page, path: str, heading: str, button: str) -> None:
    await asked(page, path, heading, button)
    await check_accessible_light_and_dark(page)


@pytest.mark.parametrize("button", ["worker-0: terminated", "Delete"])
async def test_a_runs_dialog_is_accessible_light_and_dark(browser: Browser, with_a_run: Served, button: str) -> None:
    async with browsing(browser, with_a_run.address) as (page, _):
        await asked(page, f"/runs/{RUN}", "a run", button)
        await check_accessible_light_and_dark(page)


HARM = f"""() => {{
  const card = document.querySelector('.q-dialog__inner > *');
  card.querySelector('[role=heading]').style.cssText = '{FAINT}';
  card.querySelector('.q-btn.bg-primary').style.setProperty('background', '#cccccc', 'important');
  card.querySelector('.q-btn:not(.bg-primary)').innerHTML = '';
  card.style.setProperty('background', 'transparent', 'important');
}}"""


async def test_what_is_wrong_in_a_dialog_is_found(page: Page) -> None:
    await asked(page, *PUSH)
    await page.evaluate(HARM)

    with pytest.raises(AssertionError) as found:
        await check_accessible(page)

    faults = {line.partition(":")[0]: line for line in str(found.value).splitlines()}
    assert {"color-contrast", "button-name", "glassy"} <= set(faults)
    assert ">Push a job<" in faults["color-contrast"]
    assert ">Push<" in faults["color-contrast"]


async def test_a_text_too_faint_for_its_ground_is_found_on_a_page(page: Page) -> None:
    await opened(page, "/pools/mail", "mail")
    for where in ("[role=heading]", ".q-btn.bg-primary"):
        await check_accessible(page, "colours")
        await page.evaluate(f"() => {{ document.querySelector('{where}').style.cssText = '{FAINT}' }}")

        with pytest.raises(AssertionError, match="color-contrast"):
            await check_accessible(page, "colours")
        await page.evaluate(f"() => {{ document.querySelector('{where}').style.cssText = '' }}")
