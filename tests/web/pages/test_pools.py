"""Pools and jobs in a browser."""

from playwright.async_api import Page, expect

from drumbeat.core.job import JobStatus
from drumbeat.store import open_store
from web.pages.browsing import check_accessible, opened, picture
from web.pages.scene import MAIL
from web.pages.served import Served


async def test_a_poisoned_job_is_found_explained_and_requeued(page: Page, served: Served) -> None:
    await opened(page, "/pools/mail?status=poisoned", "mail")
    await expect(page.get_by_role("cell", name="pending", exact=True)).to_have_count(0)
    job = page.locator("table[aria-label=Jobs], [aria-label=Jobs]").get_by_role("link").first
    job_id = (await job.inner_text()).strip()
    await job.click()

    await expect(page.get_by_role("region", name="Why it is where it is")).to_contain_text("it was poisoned because")
    await expect(page.get_by_label("Payload")).to_contain_text("@example.org")
    await check_accessible(page)
    await picture(page, "job")
    await page.get_by_role("button", name="Requeue").click()

    await expect(page.get_by_role("region", name="Why it is where it is")).to_contain_text("busy")
    async with open_store(served.store) as store:
        jobs = {each.job_id: each for each in await store.jobs.list(MAIL)}
    assert jobs[job_id].status is JobStatus.PENDING  # type: ignore[index]


async def test_a_payload_that_is_no_json_is_named_at_its_field_and_a_right_one_is_pushed(page: Page, served: Served) -> None:
    await opened(page, "/pools/mail", "mail")
    await page.get_by_role("button", name="Push a job").click()
    form = page.get_by_role("dialog", name="Push a job")
    await form.get_by_label("Payload (JSON)").fill("{to:")
    await form.get_by_role("button", name="Push").click()

    await expect(form.locator(".q-field--error")).to_contain_text("expected JSON")
    await check_accessible(page, in_dialog=True)

    await form.get_by_label("Payload (JSON)").fill('{"to": "pushed-by-hand@example.org"}')
    await form.get_by_label("Type").fill("welcome")
    await form.get_by_role("button", name="Push").click()
    await expect(form).to_be_hidden()
    async with open_store(served.store) as store:
        assert any(each.payload == {"to": "pushed-by-hand@example.org"} for each in await store.jobs.list(MAIL))


async def test_a_pool_is_paused_and_goes_on(page: Page) -> None:
    await opened(page, "/pools/mail", "mail")

    await page.get_by_role("button", name="Pause").click()
    await expect(page.get_by_label("Paused", exact=True)).to_have_text("yes")
    await page.get_by_role("button", name="Resume").click()
    await expect(page.get_by_label("Paused", exact=True)).to_have_text("no")


async def test_jobs_come_by_pages(page: Page) -> None:
    await opened(page, "/pools/mail", "mail")
    first = await page.locator("[aria-label=Jobs]").get_by_role("link").first.inner_text()

    await page.get_by_role("link", name="Next page").click()

    await expect(page.get_by_role("link", name="First page")).to_be_visible()
    assert await page.locator("[aria-label=Jobs]").get_by_role("link").first.inner_text() != first
