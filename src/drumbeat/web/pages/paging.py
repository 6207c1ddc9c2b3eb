"""The page number in a URL."""

LAST_PAGE = 1_000_000  #: upper bound, because not every store accepts larger offsets


def page_number(text: str) -> int:
    """Return the page number in a URL, between 1 and ``LAST_PAGE``; 1 if the text is not a number."""
    return min(max(int(text), 1), LAST_PAGE) if text.isascii() and text.isdigit() else 1
