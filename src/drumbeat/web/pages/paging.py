"""The page number in a URL."""

from collections.abc import Container, Mapping
from dataclasses import fields
from typing import Any

LAST_PAGE = 1_000_000  #: upper bound, because not every store accepts larger offsets
_DIGITS = 18  #: how many digits of a page number are read; Python refuses thousands of digits


def page_number(text: str) -> int:
    """Return the page number in a URL, between 1 and ``LAST_PAGE``; 1 if the text is not a number."""
    return min(max(int(text[:_DIGITS]), 1), LAST_PAGE) if text.isascii() and text.isdigit() else 1


def known_values(kind: type[Any], query: Mapping[str, str], orders: Container[str | None]) -> dict[str, str]:
    """Return a URL's query values that are fields of the filter class ``kind``; drop a sort order that is not in ``orders``."""
    known = {each.name for each in fields(kind)} - ({"order"} if query.get("order") not in orders else set())
    return {name: value[:200] for name, value in query.items() if name in known}
