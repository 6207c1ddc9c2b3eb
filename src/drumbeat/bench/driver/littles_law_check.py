"""Checks a measurement by Little's law: throughput × latency must equal the number of busy connections."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from drumbeat.bench.driver.records import LOST, TIMED_OUT, Records

_LONGEST_GAP = 1_000_000_000  #: nanoseconds; a longer gap is not counted: the connection was closed or idle


class LittlesLawCheck:
    """Checks by Little's law that operations, and the gaps between them, account for all the time that connections are open.

    ``client_share`` is the share of that time in gaps, when a connection waits for the client. ``unexplained`` is the share in
    neither operations nor gaps. Failed operations count too. Valid only for a closed loop without think time.
    """

    def __init__(self) -> None:
        self._busy = 0
        self._gaps = _Gaps()
        self._held: list[int] = []

    def sample(self, held: int) -> None:
        """Add a sample of how many connections are open. Call it at even intervals while measuring."""
        self._held.append(held)

    def absorb(self, records: Records) -> None:
        self._busy += int(records["duration"].sum())
        self._gaps.absorb(records)

    def check(self, seconds: float) -> Mapping[str, float] | None:
        """Return the figures of the check after this many seconds of measuring; None if nothing was measured."""
        if not self._busy or not seconds or not sum(self._held):
            return None
        held = sum(self._held) / len(self._held)
        found, between = self._busy / 1e9 / seconds, self._gaps.total / 1e9 / seconds
        return {
            "connections": held,
            "throughput_times_latency": found,
            "off_by": abs(found - held) / held,
            "client_share": between / held,
            "unexplained": abs(found + between - held) / held,
        }


class _Gaps:
    """Adds up the time between one operation's end and the next one's start on the same connection."""

    def __init__(self) -> None:
        self.total = 0  #: the time of all gaps, in nanoseconds
        self._ends: NDArray[np.int64] = np.zeros(0, dtype=np.int64)  #: when each connection's last operation ended, or 0

    def absorb(self, records: Records) -> None:
        """Add the gaps between recorded operations, which can be in any order. Each call must get later operations than the
        call before it."""
        if not len(records):
            return
        ordered = records[np.lexsort((records["start"], records["connection"]))]
        connections, starts = ordered["connection"], ordered["start"]
        ends = np.where(np.isin(ordered["outcome"], (LOST, TIMED_OUT)), 0, starts + ordered["duration"])
        self._make_room(int(connections[-1]) + 1)
        before = np.concatenate(([0], ends[:-1]))
        first = np.concatenate(([True], connections[1:] != connections[:-1]))
        before[first] = self._ends[connections[first]]
        gaps = np.where(before > 0, starts - before, 0)
        self.total += int(gaps[(gaps > 0) & (gaps < _LONGEST_GAP)].sum())
        self._ends[connections] = ends

    def _make_room(self, connections: int) -> None:
        if connections > len(self._ends):
            self._ends = np.concatenate((self._ends, np.zeros(connections - len(self._ends), dtype=np.int64)))
