"""Standard workloads (pgbench, YCSB, TPC-C, presets) at any scale."""

from collections.abc import Mapping

from drumbeat.bench.workloads.standard.presets import PRESET_WORKLOADS
from drumbeat.bench.workloads.standard.scaled import Condition, Scaled, Standard
from drumbeat.bench.workloads.standard.table import StandardTable
from drumbeat.bench.workloads.standard.tpcb import TPCB
from drumbeat.bench.workloads.standard.tpcc import TPCC
from drumbeat.bench.workloads.standard.ycsb import YCSB
from drumbeat.core.errors import InvalidInput

__all__ = ["STANDARD", "Condition", "Scaled", "Standard", "StandardTable", "standard"]

STANDARD: Mapping[str, Standard] = {each.name: each for each in (*TPCB, *YCSB, *PRESET_WORKLOADS, TPCC)}


def standard(name: str, scale: float = 1) -> Scaled:
    """Return the standard workload of this name at a scale. Raises InvalidInput for an unknown name."""
    if name not in STANDARD:
        raise InvalidInput(f"expected a standard workload, got {name!r}; choose one of {', '.join(STANDARD)}")
    return STANDARD[name].at(scale)
