"""Sets labels and attributes safely if they contain data: as values, never as part of the text for ``props``.

NiceGUI parses the text given to ``props``, and the browser evaluates the value of each name that begins with a colon: a pool
name with a quotation mark in it could run as a script. An attribute set by its key is passed on unchanged.
"""

from typing import TypeVar

from nicegui import ui

Element = TypeVar("Element", bound=ui.element)


def set_label(element: Element, name: str) -> Element:
    """Set the name that screen readers read for an element; returns the element."""
    return set_attribute(element, "aria-label", name)


def set_attribute(element: Element, attribute: str, value: object) -> Element:
    """Set an attribute of an element if its value changes; returns the element."""
    if attribute not in element.props or element.props[attribute] != value:
        element.props[attribute] = value
    return element
