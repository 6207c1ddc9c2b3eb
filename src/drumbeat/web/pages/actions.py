"""Who asks a page for something, whether they may, and how they hear what came of it."""

import logging
from collections.abc import Awaitable, Callable

from nicegui import Client, ui

from drumbeat.core.errors import DrumbeatError
from drumbeat.web.pages.element_names import called
from drumbeat.web.roles import Caller

Deed = Callable[[], Awaitable[object]]

READERS_MAY_NOT = "You may look and change nothing: log in with an operator's token."
OVER = "Your session is over."

log = logging.getLogger(__name__)


def caller() -> Caller:
    """Whoever the page at hand was made for, as the gate let them in."""
    found: Caller = ui.context.client.request.state.caller
    return found


def may_change() -> bool:
    """Asked anew each time: a page outlives the session it was made in."""
    return caller().may_change


def refuse() -> None:
    """Say why nothing is done."""
    if not caller().is_here():
        show_out()
        return
    log.warning("a reader asked for a change and was refused")
    say(READERS_MAY_NOT, wrong=True)


def show_out() -> None:
    """A page whose session is over shows nothing more, and leads to the login."""
    client = ui.context.client
    for dialog in [each for each in client.elements.values() if isinstance(each, ui.dialog)]:
        dialog.delete()
    client.content.clear()
    with client.content, ui.card().props("flat bordered role=alert").classes("w-full q-pa-lg"):
        ui.label(OVER)
        ui.link("Log in again", _here(client))


def _here(client: Client) -> str:
    """This page's own address: whoever logs in comes back to it."""
    url = client.request.url
    return url.path + (f"?{url.query}" if url.query else "")


def guarded(deed: Deed) -> Deed:
    """The same, for operators only; what goes wrong is told where it was asked for."""

    async def asked() -> None:
        if may_change():
            await told(deed)
        else:
            refuse()

    return asked


async def told(deed: Deed) -> bool:
    """Do something, and say so if it cannot be done; whether it was."""
    try:
        await deed()
    except DrumbeatError as exc:
        say(str(exc), wrong=True)
        return False
    return True


def say(words: str, *, wrong: bool = False) -> None:
    """A word that goes by itself; one about something wrong stays longer."""
    ui.notify(words, type="negative" if wrong else "positive", multi_line=True, timeout=12_000 if wrong else 4_000)


def button(text: str, deed: Deed, icon: str | None = None, *, name: str | None = None, danger: bool = False) -> ui.button:
    """A button for a change; readers do not see it. ``name``: what it is called where its text is not enough."""
    made = ui.button(text, on_click=guarded(deed), icon=icon).props(
        "no-caps unelevated" + (" color=negative" if danger else "")
    )
    if name is not None:
        called(made, name)
    if not may_change():
        made.disable()
        made.set_visibility(False)
    return made


async def confirmed(question: str, yes: str) -> bool:
    """Whether somebody says yes. The dialog has the focus; Escape means no."""
    named = ui.dialog().props('role=alertdialog aria-label="Are you sure?"')
    with named as dialog, ui.card().classes("max-w-md"):
        ui.label(question)
        with ui.row().classes("w-full justify-end"):
            ui.button("Cancel", on_click=lambda: dialog.submit(False)).props("flat no-caps autofocus")
            ui.button(yes, on_click=lambda: dialog.submit(True)).props("no-caps unelevated color=negative")
    answer = await dialog
    forget(dialog)
    return bool(answer)


def forget(dialog: ui.dialog) -> None:
    """A dialog that was answered; whoever closed the page has taken it along."""
    if not dialog.is_deleted:
        dialog.delete()
