"""Real databases to prepare and to run standard workloads on, and a way to run them."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from drumbeat.bench.driver.interface import EngineSettings, ErrorSample
from drumbeat.bench.driver.records import OK, Records
from drumbeat.bench.model import Load
from drumbeat.bench.targets.interface import Target
from drumbeat.bench.targets.open import open_target
from drumbeat.bench.values.draw import Draw
from drumbeat.core.clock import SystemClock

TARGETS = ("sqlite", "postgresql", "mysql", "duckdb")
_PATIENCE = 200.0


def _now_us() -> int:
    return int(SystemClock().now().timestamp() * 1_000_000)


def empty_file(kind: str, folder: Path) -> Target:
    return open_target(f"{kind}:///{folder / kind}")


def empty_database(kind: str, request: pytest.FixtureRequest, folder: Path) -> Target:
    """A database of that kind with nothing in it; one for each test."""
    match kind:
        case "postgresql":
            return open_target(request.getfixturevalue("postgres_url"))
        case "mysql":
            return open_target(request.getfixturevalue("mariadb_url"))
        case _:
            return empty_file(kind, folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class Driven:
    """What became of a load."""

    records: Records
    samples: Sequence[ErrorSample]
    kinds: Sequence[str]

    def rows(self, kind: str) -> list[int]:
        """How many rows each operation of a kind touched, of those that succeeded."""
        chosen = (self.records["kind"] == self.kinds.index(kind)) & (self.records["outcome"] == OK)
        return [int(rows) for rows in self.records["rows"][chosen]]

    @property
    def failed(self) -> int:
        return int(np.count_nonzero(self.records["outcome"]))


async def drive(target: Target, load: Load, *, operations: int, connections: int = 4, slot: int = 0, seed: int = 1) -> Driven:
    """Run at least so many operations."""
    engine = target.engine(load, Draw.seeded(slot, seed, _now_us), EngineSettings())
    await engine.open()
    try:
        engine.set_target(connections)
        engine.accept(True)
        taken: list[Records] = []
        deadline = time.monotonic() + _PATIENCE
        while sum(map(len, taken)) < operations or engine.open_connections < connections:
            assert engine.failure is None
            assert time.monotonic() < deadline, f"{sum(map(len, taken))} of {operations} operations in {_PATIENCE} s"
            await asyncio.sleep(0.01)
            taken.append(engine.take())
        await engine.drain(timedelta(seconds=30))
        taken.append(engine.take())
        samples = list(engine.error_samples)
    finally:
        await engine.close()
    return Driven(records=np.concatenate(taken), samples=samples, kinds=[each.kind for each in load.used])
