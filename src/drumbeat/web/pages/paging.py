"""The page number in a URL."""

LAST_PAGE = 1_000_000  #: upper bound, so that the offset stays a number every store accepts


def page_number(text: str) -> int:
    """The page number in a URL, within its bounds; 1 if the text is not a number."""
    return min(max(int(text), 1), LAST_PAGE) if text.isascii() and text.isdigit() else 1
