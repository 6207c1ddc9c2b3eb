"""Figures in words, the same wherever they are told: on a terminal, in a report, in the reason of a step."""

from math import floor, log10

NOTHING = "–"


def number(value: float | None, digits: int = 3) -> str:
    """So many significant digits, never fewer than the whole part has; thousands apart."""
    if value is None:
        return NOTHING
    if value == 0:
        return "0"
    places = max(digits - 1 - floor(log10(abs(value))), 0)
    text = f"{value:,.{min(places, 8)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def ms(value: float | None) -> str:
    return NOTHING if value is None else f"{number(value)} ms"


def told_apart(one: float, other: float, digits: int = 3) -> tuple[str, str]:
    """Two numbers with as many significant digits as it takes to see that they differ."""
    ways = ((number(one, each), number(other, each)) for each in range(digits, digits + 6))
    return next((texts for texts in ways if texts[0] != texts[1]), (number(one, digits), number(other, digits)))
