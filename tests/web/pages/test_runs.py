"""Runs that are over, in a browser: found, read, compared, run again, deleted."""

from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser, BrowserContext, Page, expect

from drumbeat.composition.plane import ControlPlane
from drumbeat.core.run import RunId, RunStatus
from web.pages.browsing import (
    DESK,
    PHONE,
    browsing,
    check_accessible,
    check_fits,
    new_context,
    opened,
    picture,
    same_tab,
    tabbed_to,
)
from web.pages.run_recorded import recorded
from web.pages.run_scene import Runs
from web.pages.served import Served, filled, serving

QUICK, SLOW, STOPPED = RunId("run-quick"), RunId("run-slow"), RunId("run-stopped")


async def build(plane: ControlPlane) -> None:
    await recorded(plane, QUICK, "checkout, before", seconds=60)
    await recorded(plane, SLOW, "checkout, after", seconds=60, slow=9.0)
    await recorded(plane, STOPPED, "search, stopped", status=RunStatus.CANCELLED, seconds=20)


@pytest.fixture(scope="module")
async def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    made = Runs(folder=tmp_path_factory.mktemp("recorded"))
    await filled(made.folder, build)
    return made


@pytest.fixture(scope="module")
async def reading(runs: Runs) -> AsyncIterator[Served]:
    with serving(runs.folder, runs.settings.store, "--no-conduct") as server:
        yield server


@pytest.fixture(scope="module")
async def desk(browser: Browser, reading: Served) -> AsyncIterator[BrowserContext]:
    async with new_context(browser, reading.address, DESK) as context:
        yield context


@pytest.fixture
async def page(desk: BrowserContext, reading: Served) -> AsyncIterator[Page]:
    async with same_tab(desk, reading.address) as (made, _):
        yield made


async def test_runs_are_found_by_a_part_of_their_name_and_the_address_keeps_it(page: Page) -> None:
    await opened(page, "/runs", "Runs")
    await expect(page.get_by_role("link", name="checkout")).to_have_count(2)
    await expect(page.get_by_role("link", name="search, stopped")).to_have_count(1)
    await expect(page.get_by_role("row").filter(has_text="checkout, before")).to_contain_text("objectives missed")
    await expect(page.get_by_role("row").filter(has_text="search, stopped")).to_contain_text("cancelled")
    await check_accessible(page)
    await picture(page, "runs")

    await page.get_by_label("Name contains").fill("CHECK")
    await expect(page.get_by_role("link", name="search, stopped")).to_have_count(0)
    await page.wait_for_url("**/runs?search=CHECK")
    await page.reload()

    await expect(page.get_by_role("link", name="checkout")).to_have_count(2)
    await expect(page.get_by_role("link", name="search, stopped")).to_have_count(0)


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("load_mode=CONCURRENCY&order=name", ["checkout, after", "checkout, before", "search, stopped"]),
        ("scaling_mode=FIXED&search=before&database=sqlite", ["checkout, before"]),
        ("status=CANCELLED&until=2999-01-01", ["search, stopped"]),
        ("load_mode=QPS&since=2000-01-01", []),
        ("database=duckdb", []),
    ],
)
async def test_runs_are_found_by_what_they_were(page: Page, query: str, names: list[str]) -> None:
    await opened(page, f"/runs?{query}", "Runs")

    links = page.get_by_label("Runs", exact=True).get_by_role("link")
    await expect(links).to_have_count(len(names))
    assert await links.all_inner_texts() == names


async def test_a_day_that_is_none_is_told_not_read(page: Page) -> None:
    await opened(page, "/runs?since=yesterday", "Runs")

    await expect(page.get_by_text("since: expected a day like 2026-03-31")).to_be_visible()


async def test_a_result_tells_kinds_errors_server_cost_and_decisions(page: Page) -> None:
    await opened(page, f"/runs/{QUICK}", "checkout, before")
    await opened(page, f"/runs/{QUICK}", "checkout, before")  # who comes later is told no less

    await expect(page.locator(".bubble.bad")).to_have_text("Completed")
    await expect(page.locator(".bubble.good")).to_have_count(0)
    await expect(page.get_by_label("Run verdict")).to_have_text("objectives missed")
    await expect(page.get_by_label("Reason for the verdict")).to_contain_text("p95 of POINT_LOOKUP: ")
    for words in (
        "all kinds",
        "could not serialize",
        "never sent by the end",
        "commits",
        "stddev (ms)",
        "all 1 workers are ready",
    ):
        await expect(page.get_by_text(words).first).to_be_visible()
    await expect(page.get_by_text("Cost: 0.021 USD, 0.035 per 1,000 operations")).to_be_visible()
    await expect(page.get_by_text("Database statistics: skipped (the database says nothing of itself)")).to_be_visible()
    await expect(page.get_by_text("✗ over")).to_be_visible()
    await expect(page.get_by_text("worker-0: it was slow")).to_be_visible()
    await check_accessible(page)
    await picture(page, "run-result")


async def test_its_failed_operations_can_be_paged_through(page: Page) -> None:
    await opened(page, f"/runs/{QUICK}", "checkout, before")
    await page.get_by_text("Operation log").click()
    table = page.get_by_label("Operation log").get_by_role("row")
    await expect(page.get_by_text("1 to 25", exact=True)).to_be_visible()
    await expect(table).to_have_count(26)

    await page.get_by_role("button", name="Next", exact=True).click()

    await expect(page.get_by_text("26 to 40", exact=True)).to_be_visible()
    await expect(table).to_have_count(16)
    await expect(page.get_by_role("button", name="Next", exact=True)).to_be_disabled()


async def test_a_class_of_errors_leads_to_the_operations_that_failed_so_and_the_link_can_be_passed_on(
    page: Page, browser: Browser, reading: Served
) -> None:
    await opened(page, f"/runs/{QUICK}", "checkout, before")
    await tabbed_to(page, "CONNECTION")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**?error_class=CONNECTION")
    rows = page.get_by_label("Operation log").get_by_role("row")
    await expect(page.get_by_text("1 to 1", exact=True)).to_be_in_viewport()
    await expect(rows).to_have_count(2)
    await expect(rows.nth(1)).to_contain_text("CONNECTION")
    await check_accessible(page)

    async with browsing(browser, reading.address) as (other, _):
        await other.goto(page.url)
        await expect(other.get_by_text("1 to 1", exact=True)).to_be_visible()


async def test_an_example_leads_to_its_sort_and_the_address_keeps_the_page_of_it(page: Page) -> None:
    await opened(page, f"/runs/{QUICK}", "checkout, before")
    await page.get_by_label("Error examples").get_by_role("link", name="DATABASE_ERROR").click()
    await page.wait_for_url("**?kind=INSERT&error_class=DATABASE_ERROR&error=40001")
    await expect(page.get_by_text("1 to 20", exact=True)).to_be_visible()
    await expect(page.get_by_role("button", name="Next", exact=True)).to_be_disabled()
    await expect(page.get_by_role("combobox", name="Error", exact=True)).to_have_value("DATABASE_ERROR 40001")

    await page.goto(f"/runs/{QUICK}?error_class=DATABASE_ERROR")
    await page.get_by_role("button", name="Next", exact=True).click()
    await page.wait_for_url("**?error_class=DATABASE_ERROR&page=2")
    await page.reload()

    await expect(page.get_by_text("26 to 39", exact=True)).to_be_visible()


async def test_a_report_can_be_taken_away(page: Page) -> None:
    await opened(page, f"/runs/{QUICK}", "checkout, before")
    async with page.expect_download() as download:
        await page.get_by_role("button", name="Download report").click()
        await page.get_by_text("markdown", exact=True).click()

    assert (await download.value).suggested_filename == f"{QUICK}.md"


async def test_one_worker_can_be_seen_closely(page: Page) -> None:
    await opened(page, f"/runs/{QUICK}", "checkout, before")
    await page.get_by_role("button", name="worker-0: terminated").click()

    await expect(page.get_by_role("dialog")).to_contain_text("connections:")
    await check_accessible(page)


async def test_two_runs_are_chosen_and_compared(page: Page) -> None:
    await opened(page, "/runs?order=name", "Runs")
    await expect(page.get_by_role("button", name="Compare", exact=True)).to_be_disabled()
    await page.get_by_role("checkbox", name="Select checkout, before").click()
    await page.get_by_role("checkbox", name="Select checkout, after").click()
    await page.get_by_role("button", name="Compare", exact=True).click()

    await expect(page.get_by_label("Verdict")).to_be_visible()
    await expect(page.get_by_role("row", name="p95 (ms)").first).to_contain_text("+353.7 %")
    await expect(page.get_by_role("cell", name="operations/s").first).to_be_visible()
    await expect(page.get_by_role("heading", name="Metrics by operation kind")).to_be_visible()
    await expect(page.get_by_text("Same configuration")).to_be_hidden()
    await expect(page.get_by_role("cell", name="name", exact=True)).to_be_visible()
    await check_accessible(page)
    await picture(page, "compare")


async def test_runs_of_different_lengths_are_said_to_be(page: Page) -> None:
    await opened(page, f"/compare?runs={QUICK},{SLOW},{STOPPED}", "Compare")

    await expect(page.get_by_text("the measurements have different lengths").first).to_be_visible()
    await expect(page.get_by_role("cell", name="timing.duration_seconds")).to_be_visible()
    await expect(page.get_by_label("Verdict")).to_have_count(2)


async def test_one_run_cannot_be_compared_and_it_is_said_what_to_do(page: Page) -> None:
    await opened(page, f"/compare?runs={QUICK}", "Compare")

    await expect(page.get_by_text("Select 2 to 5 runs. The first is the baseline.")).to_be_visible()


async def test_the_keyboard_reaches_filters_runs_and_workers(page: Page) -> None:
    await opened(page, "/runs", "Runs")
    await tabbed_to(page, "Name contains")
    await tabbed_to(page, "checkout, before")
    await opened(page, f"/runs/{QUICK}", "checkout, before")
    await tabbed_to(page, "worker-0: terminated")


@pytest.mark.parametrize(
    ("path", "heading"),
    [("/runs", "Runs"), (f"/runs/{QUICK}", "checkout, before"), (f"/compare?runs={QUICK},{SLOW}", "Compare")],
)
async def test_they_fit_a_phone_in_the_dark(browser: Browser, reading: Served, path: str, heading: str) -> None:
    async with browsing(browser, reading.address, PHONE) as (page, _):
        await page.emulate_media(color_scheme="dark")
        await opened(page, path, heading)
        if path.startswith("/compare"):
            await expect(page.get_by_label("Verdict")).to_be_visible()
        await check_fits(page)
        await check_accessible(page)
        await picture(page, f"phone-dark-{heading.split(',')[0].lower()}")


async def test_a_run_that_is_not_there_is_said_not_to_be(browser: Browser, reading: Served) -> None:
    async with browsing(browser, reading.address) as (page, watch):
        watch.expected.append("404")
        await page.goto("/runs/nope")
        await expect(page.get_by_role("alert")).to_contain_text("no run 'nope'")


async def test_a_run_is_deleted_once_that_is_confirmed(page: Page, runs: Runs) -> None:
    unwanted = await runs.asked(lambda plane: recorded(plane, "run-unwanted", "unwanted", status=RunStatus.CANCELLED))
    await opened(page, f"/runs/{unwanted}", "unwanted")
    await expect(page.locator(".bubble.bad")).to_have_text("Cancelled")
    dialog = page.get_by_role("alertdialog")
    await page.get_by_role("button", name="Delete", exact=True).click()
    await dialog.get_by_role("button", name="Go back").click()
    await expect(dialog).to_have_count(0)
    await page.get_by_role("button", name="Delete", exact=True).click()
    await dialog.get_by_role("button", name="Delete run").click()
    await page.wait_for_url("**/runs")

    left = await runs.asked(lambda plane: plane.store.runs.list())
    assert {run.run_id for run in left} == {QUICK, SLOW, STOPPED}
