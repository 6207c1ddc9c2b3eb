"""Checks the consistency conditions of a standard workload."""

from dataclasses import dataclass

from drumbeat.bench.targets.interface import Target
from drumbeat.bench.workloads.standard.scaled import Scaled

_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A condition that does not hold."""

    condition: str
    count: int
    examples: tuple[tuple[object, ...], ...]  #: the first rows that violate it


async def check_consistency(target: Target, standard: Scaled) -> tuple[Violation, ...]:
    """Check all conditions; returns the violations."""
    found = [(condition, await target.fetch(condition.sql)) for condition in standard.conditions]
    return tuple(
        Violation(condition=condition.name, count=len(rows), examples=tuple(tuple(row) for row in rows[:_SHOWN]))
        for condition, rows in found
        if rows
    )
