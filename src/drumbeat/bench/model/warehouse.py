"""The Snowflake warehouse settings that a template can contain, and the names of warehouse sizes. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from drumbeat.core.errors import InvalidInput

SIZES: Mapping[str, float] = {
    "X-Small": 1,
    "Small": 2,
    "Medium": 4,
    "Large": 8,
    "X-Large": 16,
    "2X-Large": 32,
    "3X-Large": 64,
    "4X-Large": 128,
    "5X-Large": 256,
    "6X-Large": 512,
}  #: credits that one cluster of a standard warehouse uses in an hour
MOST_CLUSTERS = 300
_SPELLINGS = {size.upper().replace("-", ""): size for size in SIZES} | {
    "XXLARGE": "2X-Large",
    "XXXLARGE": "3X-Large",
    **{f"X{number}LARGE": f"{number}X-Large" for number in range(2, 7)},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WarehouseSettings:
    """A template's settings for the warehouse under test. A setting that is None is not changed."""

    size: str | None = None
    min_clusters: int | None = None
    max_clusters: int | None = None
    scaling_policy: str | None = None
    resume: bool = False


def size_named(name: str) -> str:
    """Return a warehouse size in Snowflake's spelling: xsmall and X-SMALL become X-Small. Raises InvalidInput."""
    found = _SPELLINGS.get(name.upper().replace("-", "").replace("_", "").replace(" ", ""))
    if found is None:
        raise InvalidInput(f"warehouse size: expected one of {', '.join(SIZES)}, got {name!r}")
    return found
