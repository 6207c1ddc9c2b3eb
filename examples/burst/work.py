"""What the workers do."""

import time
from typing import Any


def draw(payload: Any) -> Any:
    """As if it were work."""
    time.sleep(payload["seconds"])
    return {"drawn": payload["n"]}
