"""Plain data that somebody gave: JSON read within a depth, and values shown within a length."""

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from drumbeat.core.errors import InvalidInput

DEEPEST = 100  #: lists and objects within one another
MOST_VALUES = 20_000  #: fields, members and values of one document; checking more takes seconds
_SHOWN = 60  #: characters of a value in a message
_FEW = 5  #: members of a list or object in a message
_UNITS = ((86_400, "days"), (3_600, "h"), (60, "min"))
_WIDE = 256  #: bits of a whole number in a message


def read_json(text: str | bytes | bytearray, what: str, **options: Any) -> Any:
    """What a text in JSON says. Raises InvalidInput, which names ``what`` and says where the text is wrong.

    ``options`` are those of ``json.loads``.
    """
    try:
        value = json.loads(text, **options)
    except json.JSONDecodeError as exc:
        raise InvalidInput(f"expected {what} in JSON, got line {exc.lineno}, column {exc.colno}: {exc.msg}") from exc
    except UnicodeDecodeError as exc:
        raise InvalidInput(f"expected {what} in UTF-8, got a byte that is not at {exc.start}") from exc
    except RecursionError:
        raise too_deep(what) from None
    except ValueError as exc:
        raise InvalidInput(f"expected {what} in JSON, got {exc}") from exc
    if brackets(text) > DEEPEST:
        check_depth(value, what)
    return value


def brackets(text: str | bytes | bytearray) -> int:
    """How many brackets open in a text of JSON, in strings too: it cannot be nested deeper than that."""
    return text.count("[") + text.count("{") if isinstance(text, str) else text.count(b"[") + text.count(b"{")


def check_depth(value: Any, what: str) -> None:
    """Raise InvalidInput for what is nested deeper than any part of the program can follow."""
    level = [value]
    for _ in range(DEEPEST + 1):
        level = [inner for each in level for inner in _inside(each)]
        if not level:
            return
    raise too_deep(what)


def check_size(value: Any, what: str) -> None:
    """Raise InvalidInput for a document of so many values that checking them would keep everybody else waiting."""
    found, waiting = 0, [value]
    while waiting:
        inside = _inside(waiting.pop())
        found += len(inside)
        if found > MOST_VALUES:
            raise InvalidInput(f"expected {what} of at most {MOST_VALUES} values, got more; leave out what is not needed")
        waiting += inside


def too_deep(what: str) -> InvalidInput:
    return InvalidInput(f"expected {what} nested at most {DEEPEST} deep, got more; flatten it")


def shown(value: Any, most: int = _SHOWN) -> str:
    """A value for a message, as repr writes it but short; what is left out is never written."""
    text = _written(value, most, 2)
    return text if len(text) <= most else text[: most - 1] + "…"


def time_span(duration: timedelta) -> str:
    """A duration at a glance: 200 ms, 12.5 s, 5 min, 36 h, 45 days."""
    seconds = duration.total_seconds()
    if abs(seconds) < 1:
        return f"{seconds * 1000:.0f} ms" if seconds else "0 s"
    for size, unit in _UNITS:
        if abs(seconds) >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.1f} s"


def _written(value: Any, most: int, levels: int) -> str:
    match value:
        case timedelta():
            return time_span(value)
        case str() | bytes():
            return repr(value[: most + 1])
        case bool() | None:
            return repr(value)
        case int():
            return repr(value) if value.bit_length() <= _WIDE else "a number of hundreds of digits"
        case dict() | list() | tuple() | set() | frozenset() if not levels:
            return "…"
        case dict():
            pairs = [f"{_written(name, most, 0)}: {_written(value[name], most, levels - 1)}" for name in _first(value)]
            return f"{{{', '.join(pairs)}}}"
        case list() | tuple() | set() | frozenset():
            inside = ", ".join(_written(each, most, levels - 1) for each in _first(value))
            return f"[{inside}]" if isinstance(value, list) else f"({inside})"
        case _:
            return repr(value)


def _first(values: Any) -> list[Any]:
    return [each for each, _ in zip(values, range(_FEW), strict=False)]


def _inside(value: Any) -> Any:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list | tuple) else ()
