"""Reads bound values as clients send them."""

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any


def values_of(bindings: dict[str, Any] | None) -> Any:
    """None, a tuple of values, or a list of such tuples where the client bound arrays."""
    if not bindings:
        return None
    ordered = [bindings[str(place)] for place in range(1, len(bindings) + 1)]
    if any(isinstance(each["value"], list) for each in ordered):
        columns = [[_value(each["type"], value) for value in each["value"]] for each in ordered]
        return list(zip(*columns, strict=True))
    return tuple(_value(each["type"], each["value"]) for each in ordered)


def _value(kind: str, text: str | None) -> Any:
    if text is None:
        return None
    match kind.upper():
        case "FIXED":
            return int(text) if "." not in text else Decimal(text)
        case "REAL":
            return float(text)
        case "BOOLEAN":
            return text.lower() in ("true", "1")
        case "BINARY":
            return bytes.fromhex(text)
        case "DATE":
            return date(1970, 1, 1) + timedelta(milliseconds=int(text))
        case "TIME":
            return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=int(text) // 1000)).time()
        case "TIMESTAMP_NTZ":
            return _instant(text).replace(tzinfo=None)
        case "TIMESTAMP_LTZ" | "TIMESTAMP":
            return _instant(text)
        case "TIMESTAMP_TZ":
            instant, _, offset = text.partition(" ")
            return _instant(instant).astimezone(timezone(timedelta(minutes=int(offset or 1440) - 1440)))
        case _:
            return text


def _instant(text: str) -> datetime:
    """Nanoseconds since 1970, or seconds with a fraction."""
    micros = int(text) // 1000 if "." not in text else round(float(text) * 1_000_000)
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
