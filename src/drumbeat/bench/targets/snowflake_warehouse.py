"""A Snowflake warehouse: how busy it is, how many statements queue, what it costs an hour, and how a template changes it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from drumbeat.bench.model import ServerSignals
from drumbeat.bench.targets.snowflake_address import quoted_part
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
_SPELLINGS = {size.upper().replace("-", ""): size for size in SIZES} | {
    "XXLARGE": "2X-Large",
    "XXXLARGE": "3X-Large",
    **{f"X{number}LARGE": f"{number}X-Large" for number in range(2, 7)},
}
_QUEUED = "Warehouse:queued"


@dataclass(frozen=True, slots=True, kw_only=True)
class WarehouseSettings:
    """What a template says about the warehouse; what is None is left as it is."""

    size: str | None = None
    min_clusters: int | None = None
    max_clusters: int | None = None
    scaling_policy: str | None = None
    resume: bool = False


def size_named(name: str) -> str:
    """Return a size as Snowflake shows it: xsmall and X-SMALL are X-Small. Raises InvalidInput."""
    found = _SPELLINGS.get(name.upper().replace("-", "").replace("_", ""))
    if found is None:
        raise InvalidInput(f"warehouse size: expected one of {', '.join(SIZES)}, got {name!r}")
    return found


def warehouse_named(name: str, rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return a warehouse's row of SHOW WAREHOUSES; a name that was never quoted is stored in upper case."""
    stored = quoted_part(name)[1:-1].replace('""', '"')
    return next((row for row in rows if row["name"] == stored), None)


def signals_of(row: Mapping[str, Any]) -> ServerSignals:
    """Return running and queued statements. A statement that queues is active, and waits for the warehouse."""
    running, queued = int(row.get("running") or 0), int(row.get("queued") or 0)
    return ServerSignals(
        at=timedelta(),
        sessions=None,
        active=running + queued,
        waiting=queued,
        lock_waits=None,
        wait_events={_QUEUED: queued} if queued else {},
    )


def changes_of(row: Mapping[str, Any], wanted: WarehouseSettings) -> list[str]:
    """Return the statements that bring a warehouse to what is wanted; none where it is so already."""
    name, said = quoted_part(str(row["name"])), []
    if wanted.size is not None and size_named(wanted.size) != row["size"]:
        said.append(f"WAREHOUSE_SIZE = '{size_named(wanted.size).upper().replace('-', '')}'")
    for setting, value in (("MIN_CLUSTER_COUNT", wanted.min_clusters), ("MAX_CLUSTER_COUNT", wanted.max_clusters)):
        if value is not None and int(row[setting.lower()]) != value:
            said.append(f"{setting} = {value}")
    policy = wanted.scaling_policy.upper() if wanted.scaling_policy else None
    if policy is not None and policy != row.get("scaling_policy"):
        said.append(f"SCALING_POLICY = {policy}")
    statements = [f"ALTER WAREHOUSE {name} SET {' '.join(said)}"] if said else []
    if wanted.resume and row["state"] == "SUSPENDED":
        statements.append(f"ALTER WAREHOUSE {name} RESUME IF SUSPENDED")
    return statements


def credits_per_hour(row: Mapping[str, Any]) -> float | None:
    """Return the credits of one cluster in an hour by the size table; None for a size or kind that the table lacks."""
    is_standard = str(row.get("type", "STANDARD")).upper() == "STANDARD"
    return SIZES.get(str(row["size"])) if is_standard else None
