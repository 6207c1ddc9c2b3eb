"""Runs one driver in its own process: drive_child.py URL CONNECTIONS SECONDS [RATE]. Prints its figures as JSON."""

import json
import sys
import tempfile
from datetime import timedelta
from pathlib import Path

import psutil

from drumbeat.bench.driver.interface import EngineSettings
from drumbeat.bench.model import KeyValue, Kind, Load, Operation, Statement, ValueType
from drumbeat.bench.targets.postgres import PostgresTarget
from drumbeat.bench.worker.drive import DriveSettings, Watcher, drive
from drumbeat.core.clock import SystemClock

ACCOUNTS = 100_000
SQL = "SELECT abalance FROM pgbench_accounts WHERE aid = $1"


def point_select() -> Load:
    """Return the load of ``pgbench -S``: the same statement with a new random key each time."""
    statement = Statement(sql=SQL, values=(KeyValue(low=1, high=ACCOUNTS, type=ValueType.INT),))
    return Load(name="select", operations=(Operation(kind=Kind.POINT_LOOKUP, weight=100, statements=(statement,), reads=True),))


async def main(url: str, connections: int, seconds: float, rate: float | None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        settings = DriveSettings(
            connections=connections,
            duration=timedelta(seconds=seconds),
            warmup=timedelta(seconds=1),
            rate=rate,
            executions=Path(folder),
            engine=EngineSettings(most_connections=connections),
        )
        memory: list[int] = []
        async with PostgresTarget(url) as target:
            watcher = Watcher(on_interval=lambda _: memory.append(_uss()))
            result = await drive(target, point_select(), settings, SystemClock(), watcher)
    print(json.dumps({**result.to_json(), "memory_bytes": max(memory)}))


def _uss() -> int:
    return int(psutil.Process().memory_full_info().uss)


if __name__ == "__main__":
    import uvloop

    uvloop.run(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]) if len(sys.argv) > 4 else None))
