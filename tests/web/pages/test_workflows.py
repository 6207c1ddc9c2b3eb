"""The page of a workflow in a browser, and the picture of its graph."""

import xml.etree.ElementTree as ElementTree
from datetime import timedelta

from playwright.async_api import Page, expect

from drumbeat.core.job import AttemptOutcome, JobId, JobOutcome, JobStatus, NewJob
from drumbeat.core.pool import PoolId, PoolKind, pool
from drumbeat.core.worker import Holder, WorkerId
from drumbeat.pool.flows import WorkflowProgress, chain
from drumbeat.pool.workflow_graph import GraphBox, WorkflowGraph
from drumbeat.store import open_store
from drumbeat.store.interface import ClaimRequest, Store
from drumbeat.web.pages.workflow_picture import drawn
from web.pages.browsing import PHONE, check_accessible_light_and_dark, check_fits, followed, opened, picture
from web.pages.served import Served

SVG = "{http://www.w3.org/2000/svg}"


def box(level: int, kind: str, **counts: int) -> GraphBox:
    states = {JobStatus(status): count for status, count in counts.items()}
    return GraphBox(level=level, pool_id=PoolId("p"), type=kind, counts=states, job_ids=(JobId(f"{kind}-1"),))


def test_a_picture_has_a_box_for_each_set_of_jobs_with_states_as_colour_and_text() -> None:
    boxes = (box(0, "<fetch>\x1b", done=90, poisoned=8, claimed=1), box(1, "", waiting=1))
    progress = WorkflowProgress(workflow_id="w", counts={})

    found = ElementTree.fromstring(drawn(WorkflowGraph(progress=progress, boxes=boxes, links=((0, 1),))))

    texts = [each.text for each in found.iter(f"{SVG}text")]
    assert texts == ["<fetch>", "99 jobs · p", "90 done, 8 poisoned, 1 in…", "-1", "p", "waiting for other jobs"]
    assert next(found.iter(f"{SVG}title")).text == "<fetch> in p: 90 done, 8 poisoned, 1 in progress"
    assert {"#1b7a3d", "#b3261e", "#8c959f"} <= {each.get("fill") for each in found.iter(f"{SVG}rect")}
    assert len([*found.iter(f"{SVG}path")]) == 1


async def push_workflow(store: Store) -> None:
    home = await store.pools.create(pool("flows", PoolKind.JOBS))
    fetches = [NewJob(payload=n, type="fetch", job_id=JobId(f"fetch-{n}")) for n in range(60)]
    jobs = chain(fetches, NewJob(payload=0, type="sum", job_id=JobId("sum")), workflow_id="nightly <1>")
    await store.queue.push(home.pool_id, jobs)


async def finish_one(store: Store) -> None:
    worker = Holder(pool_id=PoolId("flows"), worker_id=WorkerId("w"), instance="i")
    [job] = await store.queue.claim(ClaimRequest(pool_id=PoolId("flows"), holder=worker, lease=timedelta(minutes=1)))
    await store.queue.settle(worker, [JobOutcome(token=job.token, outcome=AttemptOutcome.DONE)])


async def test_a_workflow_is_reached_drawn_and_followed_live(page: Page, served: Served) -> None:
    async with open_store(served.store) as store:
        await push_workflow(store)

        await opened(page, "/pools/flows", "flows")
        await followed(page, page.get_by_role("link", name="fetch-0", exact=True))
        await followed(page, page.get_by_role("link", name="Workflow nightly <1>"))

        await expect(page.get_by_role("heading", name="Workflow nightly <1>", level=1)).to_be_visible()
        await expect(page.get_by_label("Jobs", exact=True)).to_have_text("61")
        await expect(page.get_by_role("img", name="61 jobs in 2 levels")).to_be_visible()
        row = page.get_by_role("row").filter(has_text="fetch")
        await expect(row.get_by_role("cell").nth(3)).to_have_text("60")
        await check_accessible_light_and_dark(page)
        await picture(page, "workflow")

        await finish_one(store)
        await expect(page.get_by_label("Done", exact=True)).to_have_text("1")

        await page.get_by_role("button", name="Cancel workflow").click()
        await page.get_by_role("alertdialog").get_by_role("button", name="Cancel workflow").click()
        await expect(page.get_by_label("Cancelled", exact=True)).to_have_text("60")
        await page.set_viewport_size(PHONE)
        await check_fits(page)
