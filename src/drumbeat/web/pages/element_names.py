"""What an element is called, and what else it is told that comes from data: set as a value, never written into ``props``.

NiceGUI parses the text given to ``props`` and has the browser evaluate what it finds behind a name that begins with a
colon; a pool's name with a quotation mark in it would be run as a script. What is set by its name is passed on as it is.
"""

from typing import TypeVar

from nicegui import ui

Element = TypeVar("Element", bound=ui.element)


def called(element: Element, name: str) -> Element:
    """The same element, with a name for screen readers."""
    return given(element, "aria-label", name)


def given(element: Element, attribute: str, value: object) -> Element:
    """The same element, with an attribute of it set; what it has already is not sent again."""
    if attribute not in element.props or element.props[attribute] != value:
        element.props[attribute] = value
    return element
