"""Checks that the data of a standard workload is consistent, for example that balances add up."""

from dataclasses import dataclass

from drumbeat.bench.targets.interface import Target
from drumbeat.bench.workloads.standard.scaled import Scaled

_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A consistency condition that does not hold, with the number of rows that violate it."""

    condition: str
    count: int
    examples: tuple[tuple[object, ...], ...]  #: the first of these rows


async def check_consistency(target: Target, standard: Scaled) -> tuple[Violation, ...]:
    """Check all consistency conditions of a workload in the database, and return the violations."""
    found = [(condition, await target.fetch(condition.sql)) for condition in standard.conditions]
    return tuple(
        Violation(condition=condition.name, count=len(rows), examples=tuple(tuple(row) for row in rows[:_SHOWN]))
        for condition, rows in found
        if rows
    )
