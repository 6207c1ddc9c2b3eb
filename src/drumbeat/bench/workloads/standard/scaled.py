"""A standard workload: its tables, load and consistency conditions for a scale factor."""

from collections.abc import Callable
from dataclasses import dataclass

from drumbeat.bench.model import Load
from drumbeat.bench.workloads.standard.table import StandardTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A condition that must always be true for a workload's data, with an SQL query that returns the violations."""

    name: str
    sql: str  #: returns the violations; no rows if the condition holds


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaled:
    """A standard workload at one scale: its tables, its load, and its consistency conditions."""

    name: str
    scale: float
    tables: tuple[StandardTable, ...]  #: in fill order; the load never adds or deletes rows of the last one
    load: Load
    conditions: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Standard:
    """A standard workload by name; ``at`` creates it for a given scale."""

    name: str
    summary: str  #: one line; says what scale 1 means
    at: Callable[[float], Scaled]
