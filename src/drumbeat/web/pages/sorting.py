"""What a table's rows are sorted by: values as they are, not the words that show them."""

import re
from datetime import datetime, timedelta

_LEADING = re.compile(r"[+-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")


def rank(value: object, *, number: bool) -> float | str | None:
    """What is compared in the browser. ``number``: words that begin with a figure, as ``1,200 ms`` does, are that figure."""
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
            return _figure(str(value)) if number else str(value).casefold()


def _figure(text: str) -> float | None:
    found = _LEADING.match(text.strip())
    return float(found[0].replace(",", "")) if found else None
