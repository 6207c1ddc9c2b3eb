"""What holds on every page: no fault a machine can find, a phone is wide enough, a keyboard is enough."""

from types import SimpleNamespace

import pytest
from nicegui import ui
from playwright.async_api import Browser, Page, expect

from drumbeat.core.errors import StoreUnavailable
from drumbeat.web.pages import actions, frame
from drumbeat.web.pages.element_names import set_attribute, set_label
from drumbeat.web.roles import AuthMethod, Caller, Role
from web.pages.browsing import PHONE, browsing, check_accessible, check_fits, opened, picture, tab, tabbed_to
from web.pages.served import Served

PLACES = (  #: each with its heading, and its main action where it has one
    ("/", "Overview", None),
    ("/templates", "Templates", "New template"),
    ("/templates/new", "New template", "Save"),
    ("/pools", "Pools", "Push a job"),
    ("/pools/mail", "mail", "Requeue poisoned jobs"),
    ("/fleet", "Fleet", "New fleet"),
    ("/fleet/render", "render", "Preview next decision"),
    ("/fleet/render/policy", "Policy of render", "Save"),
    ("/simulate", "Simulate a policy", "Simulate"),
    ("/triggers", "Triggers", "Fire now"),
    ("/settings", "Settings", "Add a connection"),
)


def _name(path: str) -> str:
    return path.strip("/").replace("/", "-") or "overview"


@pytest.mark.parametrize(("path", "heading", "action"), PLACES)
async def test_a_page_has_no_serious_fault_fits_a_phone_and_a_keyboard_reaches_its_action(
    page: Page, path: str, heading: str, action: str | None
) -> None:
    await opened(page, path, heading)

    await check_accessible(page)
    await picture(page, _name(path))
    if action is not None:
        await tabbed_to(page, action)
    await page.set_viewport_size(PHONE)
    await check_fits(page)
    await picture(page, f"{_name(path)}-phone")


async def test_dark_is_remembered_and_has_no_serious_fault_either(browser: Browser, served: Served) -> None:
    async with browsing(browser, served.address) as (page, _):
        await opened(page, "/", "Overview")
        await expect(page.locator("body.body--light")).to_be_attached()

        await page.get_by_role("button", name="Toggle dark mode").click()
        await expect(page.locator("body.body--dark")).to_be_attached()
        await opened(page, "/templates/new", "New template")

        await expect(page.locator("body.body--dark")).to_be_attached()
        await check_accessible(page, "colours")
        await picture(page, "templates-new-dark")


async def test_the_first_tab_leads_past_the_pages_to_the_content(page: Page) -> None:
    await opened(page, "/pools", "Pools")

    await tabbed_to(page, "Skip to content", most=1)
    await page.keyboard.press("Enter")
    await tabbed_to(page, "Push a job", most=1)


async def test_every_page_that_is_linked_is_there(page: Page) -> None:
    await opened(page, "/", "Overview")
    links = await page.locator("nav[aria-label=Pages] a").evaluate_all("links => links.map(link => link.getAttribute('href'))")

    assert {"/", "/templates", "/pools", "/fleet", "/triggers", "/settings"} <= set(links)
    assert [link for link in links if (await page.request.get(link)).status != 200] == []


async def test_a_pool_that_is_not_there_is_said_to_be_missing(page: Page) -> None:
    answer = await page.request.get("/pools/nowhere")

    assert answer.status == 404
    assert "drumbeat pool create nowhere" in await answer.text()


async def test_a_reader_is_told_to_be_one(reader: Page) -> None:
    await expect(reader.get_by_label("Your role: read-only")).to_be_visible()


async def test_logging_out_leads_to_the_login_and_ends_what_is_open_elsewhere(reader: Page, guarded: Served) -> None:
    async with tab(reader.context, guarded.address) as (other, watch):
        watch.expected.append("401")
        await opened(other, "/pools/mail?status=done", "mail")
        await reader.get_by_role("button", name="Log out").click()
        await expect(reader.get_by_label("Token")).to_be_visible()

        await expect(other.get_by_text("Your session has ended.")).to_be_visible()
        await expect(other.get_by_role("heading", name="mail")).to_have_count(0)
        await check_accessible(other)
        await other.get_by_role("link", name="Log in again").click()
        await expect(other.get_by_label("Token")).to_be_visible()


@pytest.mark.parametrize("path", ["/runs?page=²", "/runs?until=9999-12-31", "/runs?since=0001-01-01&page=99999999999999999999"])
async def test_an_odd_address_is_answered(page: Page, path: str) -> None:
    assert (await page.request.get(path)).status == 200


@pytest.mark.parametrize(
    ("failure", "status", "told", "logged"),
    [
        (StoreUnavailable("the store does not answer"), 503, "the store does not answer", []),
        (ZeroDivisionError("detail"), 500, "Unexpected error. See the server log.", [("ERROR", True)]),
    ],
)
async def test_a_page_that_cannot_be_built_says_so_and_is_no_success(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    failure: Exception,
    status: int,
    told: str,
    logged: list[tuple[str, bool]],
) -> None:
    said: list[str] = []

    async def build() -> None:
        raise failure

    monkeypatch.setattr(frame, "error_card", said.append)
    monkeypatch.setattr(frame, "ui", SimpleNamespace(context=SimpleNamespace(client=(client := SimpleNamespace()))))
    await frame._build("/somewhere", build)

    assert (client.status_code, said) == (status, [told])
    assert [(each.levelname, bool(each.exc_info)) for each in caplog.records] == logged


def test_what_comes_from_data_is_set_and_never_parsed() -> None:
    with ui.element("div").props('title="ours"') as element:
        set_label(set_attribute(element, "href", "/pools/a b?c=1"), 'x" :onclick="alert(1)')

    assert element.props == {"title": "ours", "href": "/pools/a b?c=1", "aria-label": 'x" :onclick="alert(1)'}


@pytest.mark.parametrize(
    ("role", "here", "done"), [(Role.OPERATOR, True, True), (Role.READER, True, False), (Role.OPERATOR, False, False)]
)
async def test_what_changes_something_is_done_for_operators_only_and_while_their_session_lasts(
    monkeypatch: pytest.MonkeyPatch, role: Role, here: bool, done: bool
) -> None:
    happened, said = [], []

    async def deed() -> None:
        happened.append(True)

    monkeypatch.setattr(actions, "caller", lambda: Caller(role=role, means=AuthMethod.SESSION, is_valid=lambda: here))
    monkeypatch.setattr(actions, "notify", lambda text, *, error: said.append(text))
    monkeypatch.setattr(actions, "show_session_ended", lambda: said.append(actions.SESSION_ENDED))
    await actions.operators_only(deed)()

    assert (bool(happened), bool(said)) == (done, not done)
