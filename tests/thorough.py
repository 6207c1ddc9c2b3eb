"""How much is left to chance: some of it in ``make test``, all of it in ``make soak``."""

import os

from hypothesis import HealthCheck, settings

THOROUGH = bool(os.environ.get("DRUMBEAT_THOROUGH"))

# Properties are about values: how long one example takes on a busy machine says nothing.
settings.register_profile(
    "drumbeat", max_examples=200 if THOROUGH else 35, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("drumbeat")


def some(count: int) -> int:
    """So many rounds of chance when there is time, else a quarter of them."""
    return count if THOROUGH else max(count // 4, 1)
