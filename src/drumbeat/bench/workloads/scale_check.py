"""Checks that tables are large enough for a workload's scale. In a smaller table, many lookups find no row and are too fast."""

from drumbeat.bench.targets.interface import Target
from drumbeat.bench.workloads.standard import Scaled
from drumbeat.bench.workloads.standard.table import StandardTable

_ENOUGH = 0.9  #: the highest key must reach this share of the expected one; some loads delete rows


async def size_warnings(target: Target, workload: Scaled) -> tuple[str, ...]:
    """Return a warning for each table that is too small for the workload. Raises InvalidInput if a table does not exist."""
    warnings = [await _too_small(target, workload, table) for table in workload.tables if len(table.key) == 1 and table.count]
    return tuple(filter(None, warnings))


async def _too_small(target: Target, workload: Scaled, table: StandardTable) -> str | None:
    found = await target.describe(table.name)
    last = next(iter(table.rows(table.count - 1, table.count)))[table.key_indexes[0]]
    if found.key != table.key[0] or (found.key_high is not None and found.key_high >= last * _ENOUGH):
        return None
    has = "no rows" if found.key_high is None else f"keys up to {found.key_high:,}"
    return (
        f"{table.name} has {has}, but {workload.name} at scale {workload.scale:g} needs keys up to {last:,}; "
        f"add rows with drumbeat bench prepare --scale {workload.scale:g}, or run at the scale that was prepared"
    )
