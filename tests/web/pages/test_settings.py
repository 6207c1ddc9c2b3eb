"""Settings in a browser: connections are added, tried and forgotten, and no password is ever shown."""

from playwright.async_api import Page, expect

from drumbeat.store import open_store
from web.pages.browsing import check_accessible, opened, picture
from web.pages.scene import under_test
from web.pages.served import Served

PASSWORD = "it-is-a-secret-of-ours"


async def test_a_connection_is_added_tried_made_the_default_and_forgotten(page: Page, served: Served) -> None:
    url = under_test(served.folder)
    await opened(page, "/settings", "Settings")
    await page.get_by_role("button", name="Add a connection").click()
    form = page.get_by_role("dialog", name="Add a connection")
    await form.get_by_label("Name").fill("accounts")
    await form.get_by_label("URL").fill("gopher://somewhere")
    await form.get_by_role("button", name="Add").click()
    await expect(form.locator(".q-field--error, .q-notification").or_(page.locator(".q-notification")).first).to_be_visible()

    await form.get_by_label("URL").fill(url)
    await form.get_by_role("button", name="Add").click()
    row = page.get_by_role("row").filter(has_text="accounts")
    await expect(row).to_be_visible()
    await row.get_by_role("button", name="Test").click()
    await expect(page.get_by_text("accounts: connection OK")).to_be_visible()
    await row.get_by_role("button", name="Make default").click()
    await expect(row).to_contain_text("yes")
    await expect(page.locator(".q-notification")).to_have_count(0)
    await check_accessible(page)
    await picture(page, "settings-connection")

    await row.get_by_role("button", name="Delete").click()
    await page.get_by_role("alertdialog").get_by_role("button", name="Delete").click()
    await expect(row).to_have_count(0)


async def test_a_password_is_kept_sealed_and_never_shown(page: Page, served: Served) -> None:
    await opened(page, "/settings", "Settings")
    await page.get_by_role("button", name="Add a connection").click()
    form = page.get_by_role("dialog", name="Add a connection")
    await form.get_by_label("Name").fill("postgres")
    await form.get_by_label("URL").fill("postgresql://bench@127.0.0.1:1/db")
    await form.get_by_label("Password").fill(PASSWORD)
    await form.get_by_role("button", name="Add").click()
    await expect(page.get_by_role("row").filter(has_text="postgres")).to_contain_text("encrypted")

    await page.reload()
    await expect(page.get_by_role("row").filter(has_text="postgres")).to_contain_text("encrypted")
    assert PASSWORD not in await page.content()
    async with open_store(served.store) as store:
        kept = await store.connections.get("postgres")
        await store.connections.delete("postgres")
    assert kept.secret is not None
    assert PASSWORD not in kept.secret.text


async def test_a_url_with_a_password_is_refused_at_its_field(page: Page) -> None:
    await opened(page, "/settings", "Settings")
    await page.get_by_role("button", name="Add a connection").click()
    form = page.get_by_role("dialog", name="Add a connection")
    await form.get_by_label("Name").fill("bad")
    await form.get_by_label("URL").fill(f"postgresql://bench:{PASSWORD}@127.0.0.1/db")
    await form.get_by_role("button", name="Add").click()

    await expect(form.locator(".q-field--error")).to_contain_text("holds a password")


async def test_usual_prices_are_set_and_what_is_none_is_named_at_its_field(page: Page, served: Served) -> None:
    await opened(page, "/settings", "Settings")
    usual = page.get_by_label("Default prices", exact=True).first
    await expect(usual).to_contain_text("not set")
    await page.get_by_role("button", name="Set default prices").click()
    form = page.get_by_role("dialog", name="Default prices")
    await form.get_by_label("Worker price per hour").fill("0.25")
    await form.get_by_label("Price of a Snowflake credit").fill("3")
    await form.get_by_label("Currency").fill("two words")
    await form.get_by_role("button", name="Save", exact=True).click()
    await expect(form.locator(".q-field--error")).to_contain_text("expected 1 to 10 characters")
    await check_accessible(page)
    await form.get_by_label("Currency").fill("EUR")
    await form.get_by_role("button", name="Save", exact=True).click()

    await expect(usual).to_contain_text("worker: 0.25 EUR per hour; Snowflake: 3.00 EUR per credit")
    async with open_store(served.store) as store:
        kept = await store.notes.find("prices")
        await store.notes.delete("prices")
    assert kept is not None
    assert kept.value == {"worker_hour": 0.25, "target_hour": None, "credit": 3.0, "currency": "EUR"}


async def test_prices_are_listed_with_where_they_are_set(page: Page) -> None:
    await opened(page, "/settings", "Settings")

    await expect(page.get_by_role("row").filter(has_text="render").get_by_role("link")).to_have_attribute(
        "href", "/fleet/render/policy"
    )
