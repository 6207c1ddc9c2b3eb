"""Actions of pages, such as buttons: which users can run them, and how a page reports their outcome."""

import logging
from collections.abc import Awaitable, Callable

from nicegui import Client, ui

from drumbeat.core.errors import DrumbeatError
from drumbeat.web.pages.element_names import set_label
from drumbeat.web.roles import Caller

Action = Callable[[], Awaitable[object]]

READ_ONLY = "You have read-only access. Log in with an operator token to make changes."
SESSION_ENDED = "Your session has ended."

log = logging.getLogger(__name__)


def caller() -> Caller:
    """Return the authenticated user of the current page."""
    found: Caller = ui.context.client.request.state.caller
    return found


def may_change() -> bool:
    """Whether the user is an operator with a valid session. Check before each change: a page can outlive its session."""
    return caller().may_change


def refuse() -> None:
    """Tell the user why an action is refused: the session has ended, or access is read-only."""
    if not caller().is_valid():
        show_session_ended()
        return
    log.warning("refused a change that a user with read-only access asked for on a page")
    notify(READ_ONLY, error=True)


def show_session_ended() -> None:
    """Replace the content of the page with the message that the session has ended, and a link to the login."""
    client = ui.context.client
    for dialog in [each for each in client.elements.values() if isinstance(each, ui.dialog)]:
        dialog.delete()
    client.content.clear()
    with client.content, ui.card().props("flat bordered role=alert").classes("w-full q-pa-lg"):
        ui.label(SESSION_ENDED)
        ui.link("Log in again", _page_url(client))


def _page_url(client: Client) -> str:
    """Return the URL of this page, to return to after the login."""
    url = client.request.url
    return url.path + (f"?{url.query}" if url.query else "")


def operators_only(action: Action) -> Action:
    """Wrap an action so that only users with the operator role can run it, and its errors are shown on the page."""

    async def checked() -> None:
        if may_change():
            await report_errors(action)
        else:
            refuse()

    return checked


async def report_errors(action: Action) -> bool:
    """Run an action and show its error, if any, as a notification. Returns whether it succeeded."""
    try:
        await action()
    except DrumbeatError as exc:
        notify(str(exc), error=True)
        return False
    return True


def notify(text: str, *, error: bool = False) -> None:
    """Show a notification that disappears by itself; an error stays longer."""
    ui.notify(text, type="negative" if error else "positive", multi_line=True, timeout=12_000 if error else 4_000)


def warn(text: str) -> None:
    """Show a warning as a notification that disappears by itself."""
    ui.notify(text, type="warning", textColor="white", multi_line=True, timeout=12_000)


def button(text: str, action: Action, icon: str | None = None, *, name: str | None = None, danger: bool = False) -> ui.button:
    """Add a button that changes something; hidden from users with read-only access. ``name``: accessible name, if the text is
    not enough."""
    made = ui.button(text, on_click=operators_only(action), icon=icon).props(
        "no-caps unelevated" + (" color=negative" if danger else "")
    )
    if name is not None:
        set_label(made, name)
    if not may_change():
        made.disable()
        made.set_visibility(False)
    return made


async def confirm(question: str, yes: str) -> bool:
    """Ask for confirmation in a dialog, and return the answer. The dialog takes the focus; Escape means no."""
    labelled = ui.dialog().props('role=alertdialog aria-label="Are you sure?"')
    with labelled as dialog, ui.card().classes("max-w-md"):
        ui.label(question)
        with ui.row().classes("w-full justify-end"):
            ui.button("Go back", on_click=lambda: dialog.submit(False)).props("flat no-caps autofocus")
            ui.button(yes, on_click=lambda: dialog.submit(True)).props("no-caps unelevated color=negative")
    answer = await dialog
    delete_dialog(dialog)
    return bool(answer)


def delete_dialog(dialog: ui.dialog) -> None:
    """Delete a dialog, unless closing the page has already deleted it."""
    if not dialog.is_deleted:
        dialog.delete()
