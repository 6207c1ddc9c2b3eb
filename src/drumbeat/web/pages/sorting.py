"""Sort keys for table rows: the values themselves, not the text that shows them."""

import re
from datetime import datetime, timedelta

_LEADING = re.compile(r"[+-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")


def sort_key(value: object, *, number: bool) -> float | str | None:
    """The key the browser compares. ``number``: a text such as ``1,200 ms`` is sorted by the number it begins with."""
    match value:
        case bool() | int() | float():
            return float(value)
        case datetime():
            return value.timestamp()
        case timedelta():
            return value.total_seconds()
        case None:
            return None
        case _:
            return _number(str(value)) if number else str(value).casefold()


def _number(text: str) -> float | None:
    found = _LEADING.match(text.strip())
    return float(found[0].replace(",", "")) if found else None
