"""A note: a small JSON document that is stored under a name."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A stored note (one row of ``notes``): a small JSON document ``value`` under a unique name."""

    name: str
    value: Mapping[str, Any]
    updated_at: datetime
