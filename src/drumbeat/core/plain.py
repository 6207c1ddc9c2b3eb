"""Data from users: read JSON of limited depth and whole numbers, shorten values for messages, remove control characters."""

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from drumbeat.core.errors import InvalidInput

DEEPEST = 100  #: deepest nesting of lists and objects that is accepted
MOST_VALUES = 20_000  #: most fields, members and values of one document; checking more takes seconds
_MOST_CHARACTERS = 60  #: most characters of a value in a message
_MOST_MEMBERS = 5  #: most members of a list or object in a message
_UNITS = ((86_400, "days"), (3_600, "h"), (60, "min"))
_MOST_DIGITS = 18  #: most digits of a whole number in a text; all such numbers fit into 64 bits
_MOST_BITS = 256  #: most bits of a whole number in a message


def read_json(text: str | bytes | bytearray, what: str, **options: Any) -> Any:
    """Parse JSON; ``options`` go to ``json.loads``. Raises InvalidInput with ``what`` (such as "payload"), line and column."""
    try:
        value = json.loads(text, **options)
    except json.JSONDecodeError as exc:
        raise InvalidInput(f"expected {what} in JSON, got line {exc.lineno}, column {exc.colno}: {exc.msg}") from exc
    except UnicodeDecodeError as exc:
        raise InvalidInput(f"expected {what} in UTF-8, got an invalid byte at position {exc.start}") from exc
    except RecursionError:
        raise too_deep(what) from None
    except ValueError as exc:
        raise InvalidInput(f"expected {what} in JSON, got {exc}") from exc
    if brackets(text) > DEEPEST:
        check_depth(value, what)
    return value


def whole_number(text: str) -> int | None:
    """Parse a whole number of 1 to 18 ASCII digits; None for any other text, such as ², ٣, -1 or thousands of digits."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS else None


def brackets(text: str | bytes | bytearray) -> int:
    """Count the opening brackets in a JSON text, also within strings: an upper limit of how deep the text is nested."""
    return text.count("[") + text.count("{") if isinstance(text, str) else text.count(b"[") + text.count(b"{")


def check_depth(value: Any, what: str) -> None:
    """Raise InvalidInput for a value nested more than ``DEEPEST`` levels deep."""
    level = [value]
    for _ in range(DEEPEST + 1):
        level = [inner for each in level for inner in _members(each)]
        if not level:
            return
    raise too_deep(what)


def check_size(value: Any, what: str) -> None:
    """Raise InvalidInput for a document of more than ``MOST_VALUES`` values, as checking so many would block other requests."""
    found, pending = 0, [value]
    while pending:
        inside = _members(pending.pop())
        found += len(inside)
        if found > MOST_VALUES:
            raise InvalidInput(f"expected {what} of at most {MOST_VALUES} values, got more; leave out what is not needed")
        pending += inside


def too_deep(what: str) -> InvalidInput:
    return InvalidInput(f"expected {what} nested at most {DEEPEST} deep, got more; flatten it")


def short_repr(value: Any, most: int = _MOST_CHARACTERS) -> str:
    """Return the repr of a value, shortened for a message. For speed, only the shown part of a text or list is converted."""
    text = _short_repr(value, most, 2)
    return text if len(text) <= most else text[: most - 1] + "…"


def short_json(value: Any, most: int = _MOST_CHARACTERS) -> str:
    """Return a JSON value as JSON, shortened for a line of text."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= most else text[: most - 1] + "…"


def time_span(duration: timedelta) -> str:
    """Format a duration as short text: 200 ms, 12.5 s, 5 min, 36 h, 45 days."""
    seconds = duration.total_seconds()
    if abs(seconds) < 1:
        return f"{seconds * 1000:.0f} ms" if seconds else "0 s"
    for size, unit in _UNITS:
        if abs(seconds) >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.1f} s"


def printable(text: str, *, lines: bool = False) -> str:
    """Return a text without control and formatting characters, and without repeated spaces. ``lines``: keep its line breaks."""
    parts = text.splitlines() if lines else [text]
    kept = (" ".join("".join(sign if sign.isprintable() else " " for sign in part).split()) for part in parts)
    return "\n".join(part for part in kept if part)


def _short_repr(value: Any, most: int, levels: int) -> str:
    match value:
        case timedelta():
            return time_span(value)
        case str() | bytes():
            return repr(value[: most + 1])
        case bool() | None:
            return repr(value)
        case int():
            return repr(value) if value.bit_length() <= _MOST_BITS else "a number of hundreds of digits"
        case dict() | list() | tuple() | set() | frozenset() if not levels:
            return "…"
        case dict():
            pairs = [f"{_short_repr(name, most, 0)}: {_short_repr(value[name], most, levels - 1)}" for name in _first(value)]
            return f"{{{', '.join(pairs)}}}"
        case list() | tuple() | set() | frozenset():
            inside = ", ".join(_short_repr(each, most, levels - 1) for each in _first(value))
            return f"[{inside}]" if isinstance(value, list) else f"({inside})"
        case _:
            return repr(value)


def _first(values: Any) -> list[Any]:
    return [each for each, _ in zip(values, range(_MOST_MEMBERS), strict=False)]


def _members(value: Any) -> Any:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list | tuple) else ()
