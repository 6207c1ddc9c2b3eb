"""Forms: errors are shown at their field, and a dialog stays open until its input is valid."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from nicegui import ui
from nicegui.elements.mixins.validation_element import ValidationElement

from drumbeat.core.errors import DrumbeatError
from drumbeat.web.pages.actions import delete_dialog, may_change, notify, refuse
from drumbeat.web.pages.element_names import set_label

Made = TypeVar("Made")
Field = ValidationElement[Any]
Fields = Mapping[str, Field]


def split_field(message: str) -> tuple[str, str]:
    """Split an error such as ``scaling.mode: expected …`` into field and detail; the field is '' if the message names none."""
    name, colon, detail = message.partition(": ")
    return (name, detail) if colon and " " not in name else ("", message)


def mark_field(fields: Fields, message: str) -> bool:
    """Show an error at the field that the message names, and clear the errors of others. Returns whether the field exists."""
    path, detail = split_field(message)
    for name, field in fields.items():
        field.error = detail if name == path else None
    return path in fields


def split_problems(message: str) -> list[tuple[str, str]]:
    """Split a template's validation error into (field, detail) pairs; the message has one line for each wrong field."""
    text = message.removeprefix("the template is wrong at ")
    lines = text.splitlines()[1:] if text.startswith("the template is wrong in ") else [text]
    return [split_field(line.strip()) for line in lines]


class Form:
    """A dialog with fields and one action. It closes when the action succeeds."""

    def __init__(self, title: str, submit_label: str) -> None:
        self.dialog = set_label(ui.dialog(), title)
        self._submit_label = submit_label
        with self.dialog:
            self.card = ui.card().classes("w-full max-w-lg")
        with self.card:
            ui.label(title).classes("text-h6").props("role=heading aria-level=2")
        self.fields: dict[str, Field] = {}

    def field(self, name: str, element: Field) -> Field:
        """Add a field to the dialog; ``name`` is its name in error messages."""
        self.fields[name] = element
        element.classes("w-full").props("outlined dense stack-label")
        return element

    async def ask(self, action: Callable[[], Awaitable[Made]]) -> Made | None:
        """Show the dialog until the action succeeds, and return the action's result; None if the user cancels."""

        async def submit() -> None:
            if not may_change():
                refuse()
                return
            try:
                made = await action()
            except DrumbeatError as exc:
                if not mark_field(self.fields, str(exc)):
                    notify(str(exc), error=True)
                return
            self.dialog.submit(made)

        with self.card, ui.row().classes("w-full justify-end"):
            ui.button("Cancel", on_click=self.dialog.close).props("flat no-caps")
            ui.button(self._submit_label, on_click=submit).props("no-caps unelevated")
        answer: Made | None = await self.dialog
        delete_dialog(self.dialog)
        return answer


def text_of(element: Any) -> str:
    """Return the typed text without surrounding spaces."""
    return str(element.value or "").strip()
