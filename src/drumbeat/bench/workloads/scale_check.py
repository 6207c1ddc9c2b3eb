"""Whether a database holds as much as a standard workload will ask for at its scale: keys that are not there are found missing,
which is quick, and says little of the database."""

from drumbeat.bench.targets.interface import Target
from drumbeat.bench.workloads.standard import Scaled
from drumbeat.bench.workloads.standard.table import StandardTable

_NEARLY = 0.9  #: of the keys: some loads take rows away


async def size_warnings(target: Target, workload: Scaled) -> tuple[str, ...]:
    """What to beware of, table by table. Raises InvalidInput where one is not there."""
    told = [await _missing(target, workload, table) for table in workload.tables if len(table.key) == 1 and table.count]
    return tuple(filter(None, told))


async def _missing(target: Target, workload: Scaled, table: StandardTable) -> str | None:
    there = await target.describe(table.name)
    last = next(iter(table.rows(table.count - 1, table.count)))[table.key_places[0]]
    if there.key != table.key[0] or (there.key_high is not None and there.key_high >= last * _NEARLY):
        return None
    has = "no rows" if there.key_high is None else f"keys up to {there.key_high:,}"
    return (
        f"{table.name} has {has}, and {workload.name} at scale {workload.scale:g} asks for them up to {last:,}; "
        f"load the rest with drumbeat bench prepare --scale {workload.scale:g}, or run at the scale that was loaded"
    )
