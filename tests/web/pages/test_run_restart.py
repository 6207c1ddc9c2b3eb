"""A run's page through a refresh, a cut connection and a restart of the server, all in the middle of the run."""

from contextlib import ExitStack
from pathlib import Path

from playwright.async_api import Browser, Page, expect

from drumbeat.core.run import RunStatus
from web.pages.browsing import browsing, opened
from web.pages.run_scene import LONG, Runs
from web.pages.served import serving

LIVE_MS = 90_000
BROUGHT_ABOUT = ("WebSocket", "ERR_CONNECTION_REFUSED", "ERR_CONNECTION_RESET", "ERR_EMPTY_RESPONSE", "socket.io")


async def seconds_shown(page: Page) -> int:
    minutes, seconds = (await page.get_by_role("timer").inner_text()).split(" ")[0].split(":")
    return int(minutes) * 60 + int(seconds)


async def test_a_refresh_a_cut_and_a_restart_lose_nothing(browser: Browser, tmp_path: Path) -> None:
    runs = Runs(folder=tmp_path)
    await runs.furnish()
    with ExitStack() as first:
        server = first.enter_context(serving(runs.folder, runs.settings.store))
        run_id = await runs.started(LONG)
        async with browsing(browser, server.address) as (page, watch):
            watch.expected += BROUGHT_ABOUT
            await opened(page, f"/runs/{run_id}", LONG)
            await expect(page.locator(".bubble.now")).to_have_text("Measurement", timeout=LIVE_MS)
            before = await seconds_shown(page)

            await page.reload()
            await expect(page.locator(".bubble.now")).to_have_text("Measurement")
            refreshed = await seconds_shown(page)

            await page.evaluate("() => window.socket.io.engine.close()")
            await page.wait_for_function("() => window.socket.connected")
            await expect(page.locator('[data-health="healthy"]')).to_have_count(2)
            cut = await seconds_shown(page)

            first.close()
            with serving(runs.folder, runs.settings.store, "--port", server.address.rsplit(":", 1)[1]):
                await expect(page.locator(".bubble.good")).to_have_text("Completed", timeout=LIVE_MS)
                restarted = await seconds_shown(page)
                await expect(page.get_by_text("all 2 workers are ready")).to_be_visible()
                await expect(page.get_by_role("heading", name="Results by operation kind")).to_be_visible()

    assert before <= refreshed <= cut < restarted
    assert (await runs.run(run_id)).status is RunStatus.COMPLETED
