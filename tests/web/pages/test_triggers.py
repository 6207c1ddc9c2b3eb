"""Triggers in a browser."""

import re

from playwright.async_api import Page, expect

from drumbeat.store import open_store
from web.pages.browsing import opened
from web.pages.scene import MAIL
from web.pages.served import Served


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
