"""Forms: fields whose wrong input is named beside them, and a dialog that stays until it is right."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from nicegui import ui
from nicegui.elements.mixins.validation_element import ValidationElement

from drumbeat.core.errors import DrumbeatError
from drumbeat.web.pages.actions import forget, may_change, refuse, say
from drumbeat.web.pages.element_names import called

Made = TypeVar("Made")
Field = ValidationElement[Any]
Fields = Mapping[str, Field]


def named(message: str) -> tuple[str, str]:
    """Our messages begin with the field where there is one: ``scaling.mode: expected …``; else the field is ''."""
    name, colon, detail = message.partition(": ")
    return (name, detail) if colon and " " not in name else ("", message)


def blame(fields: Fields, message: str) -> bool:
    """Put what is wrong beside its field; whether there was one."""
    path, detail = named(message)
    for name, field in fields.items():
        field.error = detail if name == path else None
    return path in fields


def problems(message: str) -> list[tuple[str, str]]:
    """A template's refusal names every field that is wrong, a line each."""
    one = message.removeprefix("the template is wrong at ")
    lines = one.splitlines()[1:] if one.startswith("the template is wrong in ") else [one]
    return [named(line.strip()) for line in lines]


class Form:
    """A dialog with fields and one deed. It closes once the deed is done."""

    def __init__(self, title: str, yes: str) -> None:
        self.dialog = called(ui.dialog(), title)
        self._yes = yes
        with self.dialog:
            self.card = ui.card().classes("w-full max-w-lg")
        with self.card:
            ui.label(title).classes("text-h6").props("role=heading aria-level=2")
        self.fields: dict[str, Field] = {}

    def field(self, name: str, element: Field) -> Field:
        """A field by the name that messages call it."""
        self.fields[name] = element
        element.classes("w-full").props("outlined dense stack-label")
        return element

    async def ask(self, deed: Callable[[], Awaitable[Made]]) -> Made | None:
        """What the deed makes; None: somebody thought better of it."""

        async def submit() -> None:
            if not may_change():
                refuse()
                return
            try:
                made = await deed()
            except DrumbeatError as exc:
                if not blame(self.fields, str(exc)):
                    say(str(exc), wrong=True)
                return
            self.dialog.submit(made)

        with self.card, ui.row().classes("w-full justify-end"):
            ui.button("Cancel", on_click=self.dialog.close).props("flat no-caps")
            ui.button(self._yes, on_click=submit).props("no-caps unelevated")
        answer: Made | None = await self.dialog
        forget(self.dialog)
        return answer


def text_of(element: Any) -> str:
    """What somebody typed, without the spaces around it."""
    return str(element.value or "").strip()
