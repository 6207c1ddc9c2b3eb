"""pgbench's throughput at each number of clients, and where it stops growing."""

import re
import subprocess
from collections.abc import Sequence
from math import log

from drumbeat.bench.control.modes.stability import WORTH
from servers.postgres import PostgresServer, installation

Curve = Sequence[tuple[int, float]]  #: clients, transactions a second


class PgbenchFailed(Exception):
    """pgbench printed no throughput."""


def throughput(server: PostgresServer, database: str, clients: int, seconds: int) -> float:
    """Return the throughput of ``pgbench -N`` (simple-update), without the time to connect. Raises PgbenchFailed."""
    command = [str(installation() / "bin" / "pgbench"), "-N", "-M", "prepared", "-n", "-c", str(clients), "-j", "1"]
    command += ["-T", str(seconds + clients // 8), "-h", "127.0.0.1", "-p", str(server.port), "-U", "postgres", database]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"tps = ([\d.]+) \(without initial connection time\)", done.stdout)
    if found is None:
        raise PgbenchFailed(f"pgbench with {clients} clients: {done.stderr.strip()[-300:] or done.stdout[-300:]}")
    return float(found[1])


def curve(server: PostgresServer, database: str, levels: Sequence[int], seconds: int) -> Curve:
    return [(level, throughput(server, database, level, seconds)) for level in levels]


def together(rounds: Sequence[Curve]) -> Curve:
    """Return the best of several rounds for each level, because other load on the machine only lowers throughput."""
    return [(points[0][0], max(tps for _, tps in points)) for points in zip(*rounds, strict=True)]


def knee(found: Curve) -> int:
    """Return the lowest level (number of clients) above which more clients bring less than a fifth of linear growth.

    This is also the rule of find-max.
    """
    return next(level for level, tps in found if not any(_is_worth(level, tps, *other) for other in found))


def _is_worth(level: int, tps: float, higher: int, reached: float) -> bool:
    return higher > level and log(reached / tps) >= WORTH * log(higher / level)
