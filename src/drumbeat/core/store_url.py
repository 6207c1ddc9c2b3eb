"""Whether a store's URL can be shown."""

import re

_SECRET_OPTION = re.compile("passw|pwd|key|secret|token|credential", re.IGNORECASE)


def has_secret(url: str) -> bool:
    """Return whether a store's URL contains a password, or an option whose name suggests a secret."""
    if url.startswith("sqlite:"):
        return False
    credentials = url.partition("://")[2].rpartition("@")[0]
    return ":" in credentials or _SECRET_OPTION.search(url.partition("?")[2]) is not None
