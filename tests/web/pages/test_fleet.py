"""Fleets in a browser: why a beat did what it did, what would be done, policies and simulations."""

from playwright.async_api import FilePayload, Page, expect

from drumbeat.core.beat import NewBeat
from drumbeat.core.pool import PoolId, PoolKind, pool
from drumbeat.core.worker import WorkerId
from drumbeat.fleet.model import FleetPolicy
from drumbeat.store import open_store
from drumbeat.store.interface import PoolChange
from drumbeat.web.pages.fleet_policy import CHANGED_MEANWHILE
from web.pages.browsing import check_accessible, followed, opened, picture
from web.pages.scene import RENDER
from web.pages.served import Served


async def test_a_beat_is_explained_and_a_plan_told(page: Page) -> None:
    await opened(page, "/fleet/render", "render")
    why = page.get_by_role("region", name="Explanation")
    await expect(why).to_contain_text("3 workers: 9 ready jobs, 3 per worker (rule: queued jobs)")

    row = page.get_by_role("row").filter(has_text="start worker ")
    await followed(page, row.get_by_role("link"))
    await expect(why).to_contain_text("Decision 1")
    await expect(why).to_contain_text("slot 0 is free")

    await page.get_by_role("button", name="Preview next decision").click()
    await expect(why).to_contain_text("nothing is changed")


async def test_a_new_beat_and_its_alarms_come_into_view(page: Page, served: Served) -> None:
    async with open_store(served.store) as store:
        last = await store.beats.last(RENDER)
        assert last is not None
        await opened(page, "/fleet/render", "render")
        alarming = {**last.summary, "alarms": ["12 jobs where there were none"], "wanted": 5}
        said = NewBeat(owner=last.owner, epoch=last.epoch, view=last.view, why_not="it waits for quiet", summary=alarming)
        await store.beats.append(RENDER, said)

    await expect(page.get_by_text("Alarm: 12 jobs where there were none")).to_be_visible()
    await expect(page.get_by_label("Target workers", exact=True)).to_have_text("5")
    await expect(page.get_by_role("cell", name="no action: it waits for quiet")).to_be_visible()
    await expect(page.get_by_role("region", name="Explanation")).to_contain_text(f"Decision {last.n + 1}")
    await check_accessible(page)


async def test_beats_can_be_paged_back_to_the_first(page: Page, served: Served) -> None:
    async with open_store(served.store) as store:
        home = await store.pools.create(pool("paged", PoolKind.FLEET, policy="fixed"))
        for n in range(1, 46):
            await store.beats.append(home.pool_id, NewBeat(owner="o", epoch=1, view={}, why_not=f"reason {n}"))
        await opened(page, "/fleet/paged", "paged")
        rows = page.get_by_label("Decisions", exact=True).get_by_role("row")
        for first, last in ((45, 26), (25, 6), (5, 1)):
            await expect(rows.nth(1)).to_contain_text(f"reason {first}")
            await expect(rows.last).to_contain_text(f"reason {last}")
            if last > 1:
                await followed(page, page.get_by_role("link", name="Older decisions"))
        await expect(page.get_by_role("link", name="Older decisions")).to_be_hidden()
        await followed(page, page.get_by_role("link", name="Newer decisions"))
        await expect(rows.nth(1)).to_contain_text("reason 25")
        await store.pools.delete(home.pool_id)


async def test_a_worker_is_drained_after_a_question(page: Page, served: Served) -> None:
    await opened(page, "/fleet/render", "render")
    button = page.get_by_role("button", name="Drain").first
    worker = ((await button.get_attribute("aria-label")) or "").removeprefix("Drain ")
    await button.click()
    await page.get_by_role("alertdialog").get_by_role("button", name="Drain").click()

    await expect(page.get_by_text(f"Draining {worker}.")).to_be_visible()
    async with open_store(served.store) as store:
        assert (await store.workers.get(RENDER, WorkerId(worker))).drain_deadline is not None


async def test_a_wrong_policy_is_named_at_its_field_and_a_right_one_is_kept(page: Page, served: Served) -> None:
    await opened(page, "/fleet/render/policy", "Policy of render")
    await expect(page.get_by_label("Queued jobs per worker")).to_be_visible()
    await expect(page.get_by_label("Workers", exact=True)).to_be_hidden()
    await page.get_by_label("Min workers", exact=True).fill("9")
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator(".q-field--error").first).to_contain_text(
        "expected min_workers ≤ max_workers, got min 9 and max 6"
    )

    await page.get_by_label("Min workers", exact=True).fill("1")
    await page.get_by_label("Max workers", exact=True).fill("7")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("heading", name="render", exact=True, level=1)).to_be_visible()
    async with open_store(served.store) as store:
        kept = await store.pools.get(RENDER)
    assert FleetPolicy.from_json(kept.policy).max_workers == 7
    assert kept.policy["handlers"] == {"": "command:true"}


async def test_a_policy_that_was_changed_while_its_page_was_open_is_not_overwritten(page: Page, served: Served) -> None:
    async with open_store(served.store) as store:
        home = await store.pools.create(pool("contested", PoolKind.FLEET, policy="fixed"))
        await opened(page, "/fleet/contested/policy", "Policy of contested")
        await store.pools.change(home.pool_id, PoolChange(policy={"workers": 3}))
        await page.get_by_role("button", name="Save").click()
        await expect(page.get_by_text(CHANGED_MEANWHILE)).to_be_visible()
        assert (await store.pools.get(home.pool_id)).policy == {"policy": "fixed", "workers": 3}
        await store.pools.delete(home.pool_id)


async def test_a_policy_is_simulated_on_the_built_in_day_and_on_a_trace_of_ones_own(page: Page) -> None:
    await opened(page, "/simulate", "Simulate a policy")
    await page.get_by_role("button", name="Simulate").click()
    outcome = page.get_by_role("region", name="Simulation result")
    await expect(outcome.get_by_role("row").filter(has_text="cost ÷ cost of an ideal fleet")).to_be_visible()
    await check_accessible(page)
    await picture(page, "simulated")

    async with page.expect_file_chooser() as choosing:
        await page.get_by_role("button", name="Upload a trace").click()
    trace = "arrival,duration\n" + "".join(f"{n},5\n" for n in range(30))
    mine: FilePayload = {"name": "mine.csv", "mimeType": "text/csv", "buffer": trace.encode()}
    await (await choosing.value).set_files(mine)
    await expect(page.get_by_text("Trace: mine.csv")).to_be_visible()
    await page.get_by_role("button", name="Simulate").click()
    await expect(outcome.get_by_role("row").filter(has_text="jobs").first).to_contain_text("30")


async def test_a_number_that_cannot_be_is_named_at_its_field(page: Page) -> None:
    await opened(page, "/simulate", "Simulate a policy")
    await page.get_by_label("Worker startup time (s)").fill("0")
    await page.get_by_role("button", name="Simulate").click()

    await expect(page.locator(".q-field--error")).to_contain_text("expected a number above 0")


async def test_a_new_fleet_is_made_by_its_policy(page: Page, served: Served) -> None:
    await opened(page, "/fleet", "Fleet")
    await page.get_by_role("button", name="New fleet").click()
    await page.get_by_role("dialog").get_by_label("Pool").fill("encode")
    await page.get_by_role("dialog").get_by_role("button", name="Next").click()
    await expect(page.get_by_role("heading", name="New fleet: encode")).to_be_visible()
    await page.get_by_role("button", name="Save").click()

    await expect(page.get_by_role("heading", name="encode", level=1, exact=True)).to_be_visible()
    async with open_store(served.store) as store:
        found = await store.pools.get(PoolId("encode"))
    assert found.policy["policy"] == "lag_aware"
