"""Sort keys of table cells, so that columns are sorted by value, not by the shown text."""

import re
from datetime import datetime, timedelta

_LEADING = re.compile(r"[+-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")


def sort_key(value: object, *, number: bool) -> float | str | None:
    """Return the key by which the browser sorts a cell; None for an empty cell.

    ``number``: the key of a text such as ``1,200 ms`` is its leading number; None if it has no leading number.
    """
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
