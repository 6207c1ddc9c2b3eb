"""The first page in a browser."""

import re

from playwright.async_api import Page, expect

from web.pages.browsing import followed, opened


async def test_the_first_page_tells_what_is_under_way_and_what_needs_attention(page: Page) -> None:
    await opened(page, "/", "Overview")

    await expect(page.get_by_label("Active runs")).to_have_text("1")
    await expect(page.get_by_label("Poisoned jobs", exact=True)).to_have_text(re.compile("[1-4]"))
    await expect(page.get_by_role("link", name=re.compile("poisoned jobs? in mail"))).to_be_visible()
    await expect(page.get_by_role("cell", name="render", exact=True)).to_be_visible()
    await expect(page.get_by_role("heading", name="Needs attention")).to_be_visible()
    await expect(page.get_by_role("link", name=re.compile("run used once is starting: no orchestrator"))).to_be_visible()
    await expect(page.get_by_role("row").filter(has_text="used once")).to_contain_text("no orchestrator")


async def test_what_needs_attention_leads_there(page: Page) -> None:
    await opened(page, "/", "Overview")

    await followed(page, page.get_by_role("link", name=re.compile("poisoned jobs? in mail")))

    await expect(page.get_by_role("heading", name="mail", level=1, exact=True)).to_be_visible()
    await expect(page.get_by_text("SMTP 550: no such mailbox").first).to_be_visible()
