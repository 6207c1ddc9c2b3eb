"""Pools and jobs in a browser."""

from playwright.async_api import Page, expect

from drumbeat.core.job import JobId, JobStatus, NewJob
from drumbeat.core.pool import PoolId, PoolKind, pool
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
    await check_accessible(page)

    await form.get_by_label("Payload (JSON)").fill('{"to": "pushed-by-hand@example.org"}')
    await form.get_by_label("Type").fill("welcome")
    await form.get_by_role("button", name="Push").click()
    await expect(form).to_be_hidden()
    async with open_store(served.store) as store:
        assert any(each.payload == {"to": "pushed-by-hand@example.org"} for each in await store.jobs.list(MAIL))


async def test_a_pool_of_an_odd_name_is_reached_by_every_link_and_one_that_cannot_be_is_refused(
    page: Page, served: Served
) -> None:
    name = "ünd %20#1?&'+;=:@~"
    async with open_store(served.store) as store:
        home = await store.pools.create(pool(name, PoolKind.JOBS))
        await store.queue.push(home.pool_id, [NewJob(payload={"n": 1}, job_id=JobId("job #1?"))])

    await opened(page, "/pools", "Pools")
    await page.get_by_role("cell").get_by_role("link", name=name, exact=True).click()
    await expect(page.get_by_role("heading", name=name, level=1)).to_be_visible()
    await page.get_by_role("link", name="job #1?").click()
    await expect(page.get_by_label("Payload")).to_contain_text('"n"')
    await page.get_by_role("link", name=name).click()
    await expect(page.get_by_role("heading", name=name, level=1)).to_be_visible()
    await opened(page, "/pools", "Pools")
    await page.get_by_role("button", name="Push a job").click()
    form = page.get_by_role("dialog", name="Push a job")
    await form.get_by_label("Pool", exact=True).fill("a/b")
    await form.get_by_role("button", name="Push").click()

    await expect(page.get_by_text("signs other than / and").first).to_be_visible()
    async with open_store(served.store) as store:
        assert await store.pools.find(PoolId("a/b")) is None
        await store.pools.delete(home.pool_id)


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
