"""Request, progress and outcome of ``bench drive``, which generates load from a single process."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class DriveRequest:
    """What ``bench drive`` is asked to do: workload, connections, rate and duration."""

    workload: str = "mixed"
    scale: float = 1
    connections: int = 8
    duration: timedelta = timedelta(seconds=30)
    warmup: timedelta = timedelta(seconds=2)
    rate: float | None = None  #: operations per second (open loop); None: as fast as possible
    seed: int | None = None
    record: str | None = None  #: folder in which every operation is recorded, as Parquet files
    limit: timedelta = timedelta(seconds=30)  #: timeout of an operation


@dataclass(frozen=True, slots=True, kw_only=True)
class DriveProgress:
    """The figures of the last second, reported once a second while ``bench drive`` runs."""

    phase: str | None
    operations_per_second: float
    errors: int
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    connections: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DriveOutcome:
    """The final figures of ``bench drive`` by name, as ``--json`` prints them, and warnings for the user."""

    figures: Mapping[str, Any]
    warnings: tuple[str, ...]
