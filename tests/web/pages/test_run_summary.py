"""A run in words, in a browser: our summary near the top, and apart from it what a language model wrote when asked."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from drumbeat.composition.plane import ControlPlane
from drumbeat.core.run import RunId
from drumbeat.store.interface import RunChange
from servers.language_model import KEY as MODEL_KEY, MODEL, Endpoint, language_model
from web.pages.browsing import PHONE, browsing, check_accessible, check_fits, opened, picture
from web.pages.conftest import READ_TOKEN, TOKEN
from web.pages.run_recorded import recorded
from web.pages.served import KEY, Served, filled, serving
from web.pages.test_readers import logged_in

NAME = "checkout"
FIRST, SECOND, FORGED = RunId("run-first"), RunId("run-second"), RunId("run-forged")
HOSTILE = "<img src=x onerror=\"document.title='run'\"><script>document.title='run'</script>{{ 7 * 7 }}"
EXPLAIN, WORDS = "Explain with a language model", "Explanation by a language model (AI)"


async def build(plane: ControlPlane) -> None:
    for run_id, slow in ((FIRST, 2.0), (SECOND, 9.0), (FORGED, 2.0)):
        await recorded(plane, run_id, NAME if run_id is not FORGED else HOSTILE, seconds=40, slow=slow)
    run = await plane.store.runs.get(FORGED)
    words = {"text": HOSTILE, "model": HOSTILE, "at": "2026-01-01T00:00:00+00:00", "unknown_numbers": [HOSTILE]}
    await plane.store.runs.update(run, RunChange(custom_metrics={**run.custom_metrics, "explanation": words}))


@pytest.fixture(scope="module")
def shared() -> Iterator[Endpoint]:
    with language_model() as made:
        yield made


@pytest.fixture
def endpoint(shared: Endpoint) -> Endpoint:
    shared.asked.clear()
    return shared


@pytest.fixture(scope="module")
async def locked(tmp_path_factory: pytest.TempPathFactory, shared: Endpoint) -> AsyncIterator[Served]:
    folder: Path = tmp_path_factory.mktemp("words")
    (folder / "drumbeat.toml").write_text(shared.toml)
    store = await filled(folder, build)
    tokens = {"DRUMBEAT_TOKEN": TOKEN, "DRUMBEAT_READ_TOKEN": READ_TOKEN, "DRUMBEAT_KEY": KEY}
    with serving(folder, store, "--no-conduct", **tokens, DRUMBEAT_LANGUAGE_MODEL_KEY=MODEL_KEY) as server:
        yield server


@asynccontextmanager
async def someone(browser: Browser, served: Served, token: str) -> AsyncIterator[Page]:
    async with browsing(browser, served.address) as (page, watch):
        watch.expected.append("401")
        await logged_in(page, token)
        yield page


@pytest.fixture
async def page(browser: Browser, locked: Served) -> AsyncIterator[Page]:
    async with someone(browser, locked, TOKEN) as made:
        yield made


@pytest.fixture
async def reading(browser: Browser, locked: Served) -> AsyncIterator[Page]:
    async with someone(browser, locked, READ_TOKEN) as made:
        yield made


async def test_the_summary_stands_near_the_top(page: Page) -> None:
    await opened(page, f"/runs/{SECOND}", NAME)

    summary = page.get_by_role("region", name="Summary")
    await expect(summary).to_contain_text("This run loaded a database with 4 connections for 40 s: 20 operations/s, p95 ")
    await expect(summary).to_contain_text("It missed an objective: ")
    await expect(summary).to_contain_text("40 of 800 operations failed, most often with DATABASE_ERROR (39).")
    await expect(summary).to_contain_text(f"Against the run before of the same kind ({FIRST}): operations/s 20 as before, p95 ")
    await expect(summary).to_contain_text(f"look at the errors first (drumbeat bench executions {SECOND} --failed).")
    box, tiles = await summary.bounding_box(), await page.get_by_label("Operations/s", exact=True).bounding_box()
    assert box is not None
    assert tiles is not None
    assert box["y"] < tiles["y"]
    await check_accessible(page)
    await picture(page, "run-summary")
    await page.set_viewport_size(PHONE)
    await check_fits(page)


async def test_an_operator_has_it_explained_and_the_words_stay(page: Page, endpoint: Endpoint, reading: Page) -> None:
    endpoint.says("Too many operations failed. Try 2 connections.")
    await opened(page, f"/runs/{SECOND}", NAME)

    await page.get_by_role("button", name=EXPLAIN).click()

    words = page.get_by_role("region", name=WORDS).get_by_role("note")
    await expect(words).to_have_text("Too many operations failed. Try 2 connections.")
    for seen in (page, reading):
        await opened(seen, f"/runs/{SECOND}", NAME)
        await expect(seen.get_by_role("region", name=WORDS)).to_contain_text(f"Written by the language model {MODEL} on ")
        await expect(seen.get_by_role("region", name=WORDS)).to_contain_text("Try 2 connections.")
        await expect(seen.get_by_role("region", name="Summary")).not_to_contain_text("Try 2 connections.")
    await expect(reading.get_by_role("button", name=EXPLAIN)).to_have_count(0)
    await check_accessible(page)
    await picture(page, "run-explained")
    assert len(endpoint.asked) == 1
    assert "run-second" not in endpoint.asked[0].body.decode()


async def test_a_model_that_refuses_is_told_and_the_summary_stays(page: Page, endpoint: Endpoint) -> None:
    endpoint.refuses(429)
    await opened(page, f"/runs/{FIRST}", NAME)

    await page.get_by_role("button", name=EXPLAIN).click()

    await expect(page.get_by_text("refuses for now (HTTP 429)")).to_be_visible()
    await expect(page.get_by_role("region", name="Summary")).to_contain_text("This run loaded a database")
    await expect(page.get_by_role("region", name=WORDS).get_by_role("note")).to_have_count(0)
    await expect(page.get_by_role("button", name=EXPLAIN)).to_be_enabled()


async def test_words_that_are_markup_are_shown_as_they_are(page: Page) -> None:
    await opened(page, f"/runs/{FORGED}", HOSTILE)

    await expect(page.get_by_role("region", name=WORDS).get_by_role("note")).to_have_text(HOSTILE)
    assert await page.locator("img[src=x]").count() == 0
    assert await page.title() != "run"


@pytest.mark.parametrize("run_id", [SECOND, FORGED])
async def test_the_report_has_the_summary_and_runs_nothing(page: Page, run_id: RunId) -> None:
    await page.goto(f"/api/v1/runs/{run_id}/report?form=html")

    await expect(page.locator("#summary")).to_contain_text("This run loaded a database with 4 connections for 40 s: ")
    assert await page.locator("script, img").count() == 0
    if run_id is FORGED:
        await expect(page.locator("#explanation blockquote")).to_have_text(HOSTILE)
    await picture(page, f"report-summary-{run_id}")
