"""Paused job types, as they are stored in a pool's policy: one field for each type."""

from collections.abc import Mapping
from typing import Any

PAUSED_TYPE = "paused_type:"  #: followed by a job type: the field of the policy that pauses this type


def paused_types(policy: Mapping[str, Any]) -> frozenset[str]:
    """Return the paused job types in a pool's policy."""
    return frozenset(name.removeprefix(PAUSED_TYPE) for name in policy if name.startswith(PAUSED_TYPE))
