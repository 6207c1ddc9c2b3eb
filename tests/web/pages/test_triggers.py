"""Triggers in a browser."""

import re

import pytest
from playwright.async_api import Page, expect

from drumbeat.store import open_store
from drumbeat.triggers.model import BeatKind, Trigger, TriggerType
from drumbeat.web.pages.triggers import pool_href
from web.pages.browsing import opened
from web.pages.scene import MAIL
from web.pages.served import Served


@pytest.mark.parametrize(
    ("machine", "pool_id", "href"),
    [
        (BeatKind.CHECKER, "mail", "/pools/mail"),
        (BeatKind.REAPER, "a/b", "/pools/a%2Fb"),
        (BeatKind.FLEET, "gpus", "/fleet/gpus"),
        (BeatKind.FLEET, None, None),
    ],
)
def test_a_triggers_pool_leads_to_its_page_and_a_fleet_to_the_fleets(
    machine: BeatKind, pool_id: str | None, href: str | None
) -> None:
    assert pool_href(Trigger(name="t", type=TriggerType.CRON, machine=machine, pool_id=pool_id)) == href


async def test_a_trigger_shows_when_it_is_due_and_is_fired_by_hand(page: Page, served: Served) -> None:
    await opened(page, "/triggers", "Triggers")
    row = page.get_by_role("row").filter(has_text="yearly-mail")
    await expect(row).to_contain_text(re.compile(r"\d{4}-\d\d-\d\d \d\d:05:00"))
    async with open_store(served.store) as store:
        before = await store.beats.last(MAIL)

    await row.get_by_role("button", name="Fire now").click()

    await expect(page.get_by_text("Fired yearly-mail. mail:")).to_be_visible()
    await expect(row).not_to_contain_text("never")
    await expect(row).to_contain_text("mail: ")
    async with open_store(served.store) as store:
        after = await store.beats.last(MAIL)
    assert after is not None
    assert before is None or after.n > before.n
