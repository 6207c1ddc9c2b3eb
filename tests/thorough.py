"""How much is left to chance: some of it in ``make test``, all of it in ``make soak``."""

import os

from hypothesis import settings

THOROUGH = bool(os.environ.get("DRUMBEAT_THOROUGH"))

settings.register_profile("thorough", max_examples=200)
settings.register_profile("quick", max_examples=35)
settings.load_profile("thorough" if THOROUGH else "quick")


def some(count: int) -> int:
    """So many rounds of chance when there is time, else a quarter of them."""
    return count if THOROUGH else max(count // 4, 1)
