"""A standard workload: its tables, its load and what must hold of it, all functions of one scale factor."""

from collections.abc import Callable
from dataclasses import dataclass

from drumbeat.bench.model import Load
from drumbeat.bench.workloads.standard.table import StandardTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """Something that holds before, during and after the load, as a query for what breaks it."""

    name: str
    sql: str  #: its rows are the violations; none, when all is well


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaled:
    """A standard workload at one scale: ready to be prepared and run."""

    name: str
    scale: float
    tables: tuple[StandardTable, ...]  #: in the order they are filled; the last one is never changed in its number of rows
    load: Load
    conditions: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Standard:
    """A workload everybody knows."""

    name: str
    summary: str  #: one line, with what a scale of 1 means
    at: Callable[[float], Scaled]
