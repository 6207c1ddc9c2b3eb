"""Driving a database from one process: what is asked for, how it goes and how it went."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class DriveRequest:
    """One process's load: what to drive with, how hard and for how long."""

    workload: str = "mixed"
    scale: float = 1
    connections: int = 8
    duration: timedelta = timedelta(seconds=30)
    warmup: timedelta = timedelta(seconds=2)
    rate: float | None = None  #: operations a second, open loop; None: as fast as possible
    seed: int | None = None
    record: str | None = None  #: a folder for every operation, as Parquet files
    limit: timedelta = timedelta(seconds=30)  #: an operation that takes longer is given up


@dataclass(frozen=True, slots=True, kw_only=True)
class DriveProgress:
    """How it goes, once a second."""

    phase: str | None
    operations_per_second: float
    errors: int
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    connections: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DriveOutcome:
    """How it went: figures by name, as ``--json`` prints them, and what the reader should know about them."""

    figures: Mapping[str, Any]
    warnings: tuple[str, ...]
