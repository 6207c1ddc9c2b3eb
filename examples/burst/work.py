"""The handler that the workers run."""

import time
from typing import Any


def draw(payload: Any) -> Any:
    """Sleep instead of real work."""
    time.sleep(payload["seconds"])
    return {"drawn": payload["n"]}
