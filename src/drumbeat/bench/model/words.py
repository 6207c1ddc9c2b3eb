"""Formats numbers in the same way on the terminal, in reports and in the reasons of decisions."""

from math import floor, log10

NOTHING = "–"


def number(value: float | None, digits: int = 3) -> str:
    """Format a number with thousands separators and ``digits`` significant digits; a longer integer part is shown in full.

    None becomes a dash."""
    if value is None:
        return NOTHING
    if value == 0:
        return "0"
    decimals = max(digits - 1 - floor(log10(abs(value))), 0)
    text = f"{value:,.{min(decimals, 8)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def ms(value: float | None) -> str:
    return NOTHING if value is None else f"{number(value)} ms"


def texts_that_differ(one: float, other: float, digits: int = 3) -> tuple[str, str]:
    """Format two different numbers so that their texts differ too: with more significant digits than usual if necessary."""
    candidates = ((number(one, each), number(other, each)) for each in range(digits, digits + 6))
    return next((texts for texts in candidates if texts[0] != texts[1]), (number(one, digits), number(other, digits)))


def and_failed_connects(count: int) -> str:
    """Return text such as ``, 3 failed connects`` to append to a count of errors; empty for 0."""
    return f", {count:,} failed connect{'' if count == 1 else 's'}" if count else ""
