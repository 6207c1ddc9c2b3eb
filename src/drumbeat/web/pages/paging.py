"""Which page of many an address asks for."""

LAST_PAGE = 1_000_000  #: no store has more, and none need count further


def page_number(text: str) -> int:
    """The first, where an address names none."""
    return min(max(int(text), 1), LAST_PAGE) if text.isascii() and text.isdigit() else 1
