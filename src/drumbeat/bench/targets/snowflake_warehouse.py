"""A Snowflake warehouse: how busy it is, how many statements queue, what it costs an hour, and how a template changes it."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from drumbeat.bench.model import ServerSignals
from drumbeat.bench.model.warehouse import SIZES, WarehouseSettings, size_named
from drumbeat.bench.targets.snowflake_address import quoted_stored
from drumbeat.core.errors import InvalidInput

_QUEUED = "Warehouse:queued"
#: what a warehouse has in an account without multi-cluster warehouses, where SHOW WAREHOUSES may leave out these columns
_SINGLE_CLUSTER = {"MIN_CLUSTER_COUNT": 1, "MAX_CLUSTER_COUNT": 1, "SCALING_POLICY": "STANDARD"}


def signals_of(row: Mapping[str, Any]) -> ServerSignals:
    """Return the numbers of running and queued statements. A queued statement counts as active, and as waiting."""
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
    """Return the SQL that gives a warehouse the wanted settings; empty if the warehouse already has them.

    Raises InvalidInput if more than one cluster is wanted and the account has no multi-cluster warehouses."""
    name, said = quoted_stored(str(row["name"])), []
    if wanted.size is not None and size_named(wanted.size) != row["size"]:
        said.append(f"WAREHOUSE_SIZE = '{size_named(wanted.size).upper()}'")
    policy = wanted.scaling_policy.upper() if wanted.scaling_policy else None
    for setting, value in (
        ("MIN_CLUSTER_COUNT", wanted.min_clusters),
        ("MAX_CLUSTER_COUNT", wanted.max_clusters),
        ("SCALING_POLICY", policy),
    ):
        if value is not None and str(value) != str(row.get(setting.lower(), _SINGLE_CLUSTER[setting])):
            _check_clusters(row, setting, value)
            said.append(f"{setting} = {value}")
    statements = [f"ALTER WAREHOUSE {name} SET {' '.join(said)}"] if said else []
    if wanted.resume and row["state"] == "SUSPENDED":
        statements.append(f"ALTER WAREHOUSE {name} RESUME IF SUSPENDED")
    return statements


def _check_clusters(row: Mapping[str, Any], setting: str, value: object) -> None:
    if setting.lower() not in row:
        raise InvalidInput(
            f"expected an account with multi-cluster warehouses (Enterprise Edition) for {setting} = {value}, got warehouse "
            f"{row['name']}, which has one cluster; leave min_clusters, max_clusters and scaling_policy out of the template"
        )


def credits_per_hour(row: Mapping[str, Any]) -> float | None:
    """Return how many credits one cluster uses in an hour; None if unknown for the warehouse's size, type or generation."""
    is_standard = str(row.get("type", "STANDARD")).upper() == "STANDARD" and str(row.get("generation") or "1") == "1"
    return SIZES.get(str(row["size"])) if is_standard else None
