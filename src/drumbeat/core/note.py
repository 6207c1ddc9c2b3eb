"""A note: a small named document that is kept in the store."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """One row of ``notes``."""

    name: str
    value: Mapping[str, Any]
    updated_at: datetime
