"""Runs watched in a browser while they are under way: real workers, an embedded database under test."""

import os
import signal
from collections.abc import AsyncIterator, Sequence

import pytest
from playwright.async_api import Browser, Page, expect

from drumbeat.core.pool import PoolId
from drumbeat.core.run import RunId, RunStatus
from drumbeat.core.worker import Worker, WorkerStatus
from web.pages.browsing import browsing, check_accessible, opened, picture
from web.pages.run_scene import ENDLESS, SEARCH, SHORT, Runs
from web.pages.served import Served, serving

LIVE_MS = 90_000
COUNT_EXTENSIONS = """Object.defineProperty(window, 'extendChart', {
  get() { return this.countedExtend; },
  set(extend) {
    this.countedExtend = (...told) => {
      sessionStorage.setItem('extended', Number(sessionStorage.getItem('extended')) + 1);
      extend(...told);
    };
  },
});"""  #: counts how often charts are told only what is new, also where the page is loaded again meanwhile
IS_GAPLESS = """() => {
  const chart = getElement(Number(document.querySelector('[aria-label="Throughput"]').id.slice(1))).chart;
  const data = chart.getOption().series[0].data;
  return data.length > 3 && data.every((point, n) => n === 0 || point[0] > data[n - 1][0]);
}"""


@pytest.fixture(scope="module")
async def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    made = Runs(folder=tmp_path_factory.mktemp("runs"))
    await made.furnish()
    return made


@pytest.fixture(scope="module")
async def conducting(runs: Runs) -> AsyncIterator[Served]:
    with serving(runs.folder, runs.settings.store) as server:
        yield server


@pytest.fixture
async def page(browser: Browser, conducting: Served) -> AsyncIterator[Page]:
    async with browsing(browser, conducting.address) as (made, _):
        yield made


async def test_a_run_is_made_from_a_template_watched_live_and_read_afterwards(page: Page) -> None:
    await opened(page, "/runs", "Runs")
    await page.get_by_role("button", name="New run").click()
    await page.get_by_role("dialog").get_by_role("combobox", name="template").click()
    await page.get_by_role("option", name=SHORT).click()
    await page.get_by_role("button", name="Create run").click()
    await expect(page.get_by_role("heading", name=SHORT, level=1)).to_be_visible()
    await expect(page.get_by_label("Status", exact=True)).to_have_text("prepared")

    await page.get_by_role("button", name="Start", exact=True).click()

    await expect(page.locator(".bubble.now")).to_have_text("Measurement", timeout=LIVE_MS)
    await expect(page.locator('[data-health="healthy"]')).to_have_count(2)
    await expect(page.get_by_text("2 workers with 2 connections each (FIXED)")).to_be_visible()
    await expect(page.get_by_text("At max workers (2/2)")).to_be_visible()
    await expect(page.get_by_label("p95", exact=True)).to_contain_text("ms", timeout=LIVE_MS)
    await check_accessible(page)
    await picture(page, "run-live")

    await expect(page.locator(".bubble.good")).to_have_text("Completed", timeout=LIVE_MS)
    await expect(page.get_by_role("heading", name="Results by operation kind")).to_be_visible()
    await expect(page.get_by_role("cell", name="all kinds").first).to_be_visible()
    await expect(page.get_by_text("all 2 workers are ready")).to_be_visible()
    await page.get_by_text("Operation log").click()
    await expect(page.get_by_text("1 to 25", exact=True)).to_be_visible()


async def active(runs: Runs, run_id: RunId) -> Sequence[Worker]:
    found: Sequence[Worker] = await runs.asked(lambda plane: plane.store.workers.list(PoolId(run_id)))
    return [worker for worker in found if worker.status is WorkerStatus.ACTIVE]


async def test_a_worker_that_is_killed_turns_red_and_the_run_can_be_stopped(page: Page, runs: Runs) -> None:
    run_id = await runs.started(ENDLESS)
    await page.add_init_script(COUNT_EXTENSIONS)
    await opened(page, f"/runs/{run_id}", ENDLESS)
    await expect(page.locator(".bubble.now")).to_have_text("Measurement", timeout=LIVE_MS)
    await expect(page.locator('[data-health="healthy"]')).to_have_count(2)
    await page.wait_for_function("Number(sessionStorage.getItem('extended')) > 0", timeout=LIVE_MS)

    worker = (await active(runs, run_id))[0]
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGKILL)

    red = page.locator('[data-health="lost"]')
    await expect(red).to_have_count(1, timeout=LIVE_MS)
    await expect(red).to_contain_text(worker.worker_id)
    await expect(red).to_have_css("border-left-color", "rgb(196, 38, 28)")
    await picture(page, "run-worker-lost")

    await page.get_by_role("button", name="Stop", exact=True).click()
    await page.get_by_role("button", name="Stop run").click()

    await expect(page.locator(".bubble.bad")).to_have_text("Cancelled", timeout=LIVE_MS)
    assert (await runs.run(run_id)).status is RunStatus.CANCELLED
    await page.wait_for_function(IS_GAPLESS, timeout=LIVE_MS)


async def test_a_search_shows_its_steps_and_that_bounds_were_the_limit(page: Page, runs: Runs) -> None:
    run_id = await runs.started(SEARCH)
    await opened(page, f"/runs/{run_id}", SEARCH)
    await expect(page.get_by_label("Step ends in")).to_contain_text("s", timeout=LIVE_MS)
    await expect(page.get_by_label("Best so far")).to_contain_text("at", timeout=LIVE_MS)
    await expect(page.get_by_label("Maximum connections found", exact=True)).to_contain_text("Best so far: ")
    await picture(page, "run-find-max")

    await expect(page.locator(".bubble.good")).to_have_text("Completed", timeout=LIVE_MS)

    await expect(page.get_by_label("Maximum connections found", exact=True)).to_contain_text(
        "Max within the template's limits: 6 connections at "
    )
    await expect(page.get_by_label("Throughput by connections", exact=True)).to_be_visible()
    await expect(page.get_by_label("Type of maximum")).to_have_text("limit of the template (BOUNDED_MAX)")
    await expect(page.get_by_label("Max stable connections", exact=True)).to_have_text("not reached")
    await expect(page.get_by_text("Maximum within configured bounds (not system limit)").first).to_be_visible()
