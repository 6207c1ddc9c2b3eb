"""Pools and jobs in a browser."""

import re
from datetime import timedelta
from urllib.parse import quote

from playwright.async_api import Page, expect

import drumbeat
from drumbeat.core.job import AttemptOutcome, JobId, JobOutcome, JobStatus, NewJob
from drumbeat.core.job_step import JobStep, NewStep, StepKind
from drumbeat.core.pool import PoolId, PoolKind, pool
from drumbeat.core.worker import Holder, WorkerId
from drumbeat.store import open_store
from drumbeat.store.interface import ClaimRequest
from web.pages.browsing import PHONE, check_accessible, check_fits, followed, opened, picture, pressed
from web.pages.scene import MAIL
from web.pages.served import Served

LONG = "x" * 80  #: where no line can be broken


async def test_a_poisoned_job_is_found_explained_and_requeued(page: Page, served: Served) -> None:
    await opened(page, "/pools/mail?status=poisoned", "mail")
    await expect(page.get_by_role("cell", name="ready", exact=True)).to_have_count(0)
    job = page.locator("table[aria-label=Jobs], [aria-label=Jobs]").get_by_role("link").first
    job_id = (await job.inner_text()).strip()
    await job.click()

    await expect(page.get_by_role("region", name="Status explanation")).to_contain_text("It was poisoned because")
    await expect(page.get_by_label("Payload")).to_contain_text("@example.org")
    await check_accessible(page)
    await picture(page, "job")
    await page.get_by_role("button", name="Requeue").click()

    # the only worker holds another job; by now it may have been silent for so long that it is none
    await expect(page.get_by_role("region", name="Status explanation")).to_contain_text(re.compile("busy|no live worker"))
    async with open_store(served.store) as store:
        jobs = {each.job_id: each for each in await store.jobs.list(MAIL)}
    assert jobs[job_id].status is JobStatus.PENDING  # type: ignore[index]


async def test_a_payload_that_is_no_json_is_named_at_its_field_and_a_right_one_is_pushed(page: Page, served: Served) -> None:
    await opened(page, "/pools/mail", "mail")
    await page.get_by_role("button", name="Push a job").click()
    form = page.get_by_role("dialog", name="Push a job")
    await form.get_by_label("Payload (JSON)").fill("{to:")
    await form.get_by_role("button", name="Push").click()

    await expect(form.locator(".q-field--error")).to_contain_text("expected the payload in JSON, got line 1, column 2")
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
    name = 'ünd %20#1?&\'+;=:@~" :y="window.pwned=1" innerHTML="<img src=x onerror=window.pwned=2>" {{window.pwned=3}}' + LONG
    async with open_store(served.store) as store:
        home = await store.pools.create(pool(name, PoolKind.JOBS))
        await store.queue.push(home.pool_id, [NewJob(payload={"n": 1}, job_id=JobId("job #1?"))])

    await opened(page, "/pools", "Pools")
    await followed(page, page.get_by_role("cell").get_by_role("link", name=name, exact=True))
    await expect(page.get_by_role("heading", name=name, level=1)).to_be_visible()
    await expect(page.get_by_label(f"Jobs and workers of {name} in the last hour")).to_be_visible()
    assert await page.evaluate("window.pwned") is None, "a pool's name is run as a script"
    await followed(page, page.get_by_role("link", name="job #1?"))
    await expect(page.get_by_label("Payload")).to_contain_text('"n"')
    assert await page.evaluate("window.pwned") is None
    await page.get_by_role("link", name=name).click()
    await expect(page.get_by_role("heading", name=name, level=1)).to_be_visible()
    await opened(page, "/pools", "Pools")
    await page.get_by_role("button", name="Push a job").click()
    form = page.get_by_role("dialog", name="Push a job")
    await form.get_by_label("Pool", exact=True).fill("a/b")
    await form.get_by_role("button", name="Push").click()

    await expect(page.get_by_text("printable characters, no / or").first).to_be_visible()
    await page.set_viewport_size(PHONE)
    for path, heading in (("/pools", "Pools"), ("/", "Overview"), (f"/pools/{quote(name, safe='')}", name)):
        await opened(page, path, heading)
        await check_fits(page)
        assert await page.evaluate("window.pwned") is None
    async with open_store(served.store) as store:
        assert await store.pools.find(PoolId("a/b")) is None
        await store.pools.delete(home.pool_id)


async def test_a_pool_tells_what_is_done_and_is_paused_and_goes_on(page: Page) -> None:
    await opened(page, "/pools/mail", "mail")
    await expect(page.get_by_label("Done", exact=True)).to_have_text("12")
    await expect(page.get_by_label("Cancelled", exact=True)).to_have_text("1")
    await expect(page.get_by_label("Done or poisoned per minute")).to_have_text("0")

    await page.get_by_role("button", name="Pause").click()
    await expect(page.get_by_label("Paused", exact=True)).to_have_text("yes")
    await page.get_by_role("button", name="Resume").click()
    await expect(page.get_by_label("Paused", exact=True)).to_have_text("no")


async def test_a_table_is_sorted_by_values_and_by_keyboard(page: Page, served: Served) -> None:
    counts = {"sort-nine": 9, "sort-ten": 10, "sort-many": 1200}
    async with open_store(served.store) as store:
        for name, many in counts.items():
            home = await store.pools.create(pool(name, PoolKind.JOBS))
            await store.queue.push(home.pool_id, [NewJob(payload={})] * many)
    await opened(page, "/pools", "Pools")
    ready = page.get_by_role("columnheader", name="ready")
    await expect(ready).to_have_attribute("aria-sort", "none")
    await ready.focus()
    for order, expected in (("ascending", ["9", "10", "1,200"]), ("descending", ["1,200", "10", "9"])):
        await page.keyboard.press("Enter")
        await expect(ready).to_have_attribute("aria-sort", order)
        rows = page.get_by_role("row").filter(has_text="sort-")
        assert [await row.get_by_role("cell").nth(1).inner_text() for row in await rows.all()] == expected
    async with open_store(served.store) as store:
        for name in counts:
            await store.pools.delete(PoolId(name))


async def test_a_job_that_is_pushed_elsewhere_comes_into_view(page: Page, served: Served) -> None:
    async with open_store(served.store) as store:
        home = await store.pools.create(pool("elsewhere", PoolKind.JOBS))
        await opened(page, "/pools/elsewhere", "elsewhere")
        await expect(page.get_by_text("No matching jobs")).to_be_visible()
        await store.queue.push(home.pool_id, [NewJob(payload={}, job_id=JobId("from-elsewhere"))])

        await expect(page.get_by_role("link", name="from-elsewhere")).to_be_visible()
        await expect(page.get_by_text("No matching jobs")).to_be_hidden()
        await store.pools.delete(home.pool_id)
        await expect(page.get_by_text("showing old data").first).to_be_visible()
        await check_accessible(page)


async def test_the_steps_of_a_job_are_on_its_page(page: Page, served: Served) -> None:
    async with open_store(served.store) as store:
        home = await store.pools.create(pool("stepping", PoolKind.JOBS))
        [job_id] = await store.queue.push(home.pool_id, [NewJob(payload={}, job_id=JobId("with-steps"))])
        holder = Holder(pool_id=home.pool_id, worker_id=WorkerId("w"))
        [job] = await store.queue.claim(ClaimRequest(pool_id=home.pool_id, holder=holder, lease=timedelta(hours=1)))
        now = await store.now()
        step = JobStep(position=1, name="charge", kind=StepKind.STEP, result={"charged": 7}, started_at=now, finished_at=now)
        waits = JobStep(position=2, name="address", kind=StepKind.EVENT, started_at=now)
        await store.job_steps.record(holder, [NewStep(token=job.token, step=each) for each in (step, waits)])
        await store.job_steps.send(job_id, "approval", "yes")

    await opened(page, "/pools/stepping/jobs/with-steps", "Job with-steps")

    await expect(page.get_by_role("heading", name="Steps", exact=True)).to_be_visible()
    await expect(page.get_by_role("cell", name="charge", exact=True)).to_be_visible()
    await expect(page.get_by_role("cell", name='{"charged": 7}')).to_be_visible()
    await expect(page.get_by_role("cell", name="approval", exact=True)).to_be_visible()
    await expect(page.get_by_role("button", name="Send event approval")).to_have_count(0)
    await check_accessible(page)
    await page.get_by_role("button", name="Send event address").click()
    await page.get_by_label("Value (JSON)").fill('{"street": "Main"}')
    await page.get_by_role("button", name="Send", exact=True).click()
    await expect(page.get_by_role("cell", name='{"street": "Main"}')).to_be_visible()
    await expect(page.get_by_role("button", name="Send event address")).to_have_count(0)


async def test_jobs_come_by_pages(page: Page) -> None:
    await opened(page, "/pools/mail", "mail")
    first = await page.locator("[aria-label=Jobs]").get_by_role("link").first.inner_text()

    await page.get_by_role("link", name="Next page").click()

    await expect(page.get_by_role("link", name="First page")).to_be_visible()
    assert await page.locator("[aria-label=Jobs]").get_by_role("link").first.inner_text() != first


async def test_the_schedules_of_a_pool_are_shown_paused_and_resumed(page: Page, served: Served) -> None:
    async with drumbeat.connect(served.store) as db:
        await db.pool("timed").schedules.add("nightly", cron="0 3 * * *", tz="Europe/Berlin", type="report")

    await opened(page, "/pools/timed", "timed")
    table = page.get_by_label("Schedules")
    await expect(table).to_contain_text("0 3 * * * (Europe/Berlin)")
    await expect(table).to_contain_text("active")
    await expect(page.get_by_text("no process has looked after the schedules of timed yet")).to_be_visible()
    await check_accessible(page)
    await pressed(table.get_by_role("button", name="Pause"), table.get_by_text("paused", exact=True))
    await pressed(table.get_by_role("button", name="Resume"), table.get_by_text("active", exact=True))

    async with drumbeat.connect(served.store) as db:
        assert not (await db.pool("timed").schedules.get("nightly")).schedule.paused


async def test_jobs_are_changed_by_filter_after_a_preview_and_an_error_group_is_requeued(page: Page, served: Served) -> None:
    async with open_store(served.store) as store:
        home = await store.pools.create(pool("by-filter", PoolKind.JOBS))
        await store.queue.push(home.pool_id, [NewJob(payload={}, type=kind) for kind in ("mail", "mail", "sms")])
        await store.queue.push(home.pool_id, [NewJob(payload={}, type="fetch", max_attempts=1, job_id=JobId("slow"))])
        me = Holder(pool_id=home.pool_id, worker_id=WorkerId("me"))
        asking = ClaimRequest(pool_id=home.pool_id, holder=me, lease=timedelta(minutes=1), types=("fetch",))
        [job] = await store.queue.claim(asking)
        failed = JobOutcome(token=job.token, outcome=AttemptOutcome.FAILED, error="timeout after 3 s")
        await store.queue.settle(me, [failed])

        await opened(page, "/pools/by-filter", "by-filter")
        await followed(page, page.get_by_role("link", name="Bulk actions"))
        await page.get_by_label("Type", exact=True).fill("mail")
        await page.get_by_role("button", name="Preview").click()
        await expect(page.get_by_role("status").filter(has_text="2 jobs would be cancelled.")).to_be_visible()
        await check_accessible(page)
        assert (await store.jobs.counts(home.pool_id)).cancelled == 0
        await page.get_by_role("button", name="Cancel 2 jobs").click()
        await page.get_by_role("alertdialog").get_by_role("button", name="Cancel 2 jobs").click()
        await expect(page.get_by_role("status").filter(has_text="2 of 2 jobs cancelled.")).to_be_visible()
        assert (await store.jobs.counts(home.pool_id)).cancelled == 2

        await page.get_by_label("Action").click()
        await page.get_by_role("option", name="Prioritise jobs").click()
        await page.get_by_label("Type", exact=True).fill("sms")
        await page.get_by_label("New priority (higher first)").fill("7")
        await page.get_by_role("button", name="Preview").click()
        await page.get_by_role("button", name="Prioritise 1 job").click()
        await page.get_by_role("alertdialog").get_by_role("button", name="Prioritise 1 job").click()
        await expect(page.get_by_role("status").filter(has_text="1 of 1 job prioritised.")).to_be_visible()
        [sms] = await store.jobs.list(home.pool_id, job_type="sms")
        assert sms.priority == 7

        await opened(page, "/pools/by-filter/errors", "Error groups")
        await expect(page.get_by_role("cell", name="timeout after <n> s", exact=True)).to_be_visible()
        await check_accessible(page)
        await page.get_by_role("button", name="Requeue all").click()
        await page.get_by_role("alertdialog").get_by_role("button", name="Requeue").click()
        await expect(page.get_by_text("No poisoned jobs")).to_be_visible()
        assert (await store.jobs.get(JobId("slow"))).status is JobStatus.PENDING
        await store.pools.delete(home.pool_id)
