"""Little's law as the measurement's own check: throughput × latency = connections."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from drumbeat.bench.driver.records import LOST, TIMED_OUT, Records

_ANOTHER_LIFE = 1_000_000_000  #: nanoseconds; who was away for longer was closed meanwhile, or had nothing to do


class LittlesLawCheck:
    """Sums up what connections did with their time, in a closed loop without think time.

    All operations count, those that failed too. What is missing is the time connections waited for the client between two
    operations (``client_share``, measured by itself); what is missing even so is ``unexplained``.
    """

    def __init__(self) -> None:
        self._busy = 0
        self._gaps = _Gaps()
        self._held: list[int] = []

    def look(self, held: int) -> None:
        """Called evenly over the time that is measured."""
        self._held.append(held)

    def absorb(self, records: Records) -> None:
        self._busy += int(records["duration"].sum())
        self._gaps.absorb(records)

    def check(self, seconds: float) -> Mapping[str, float] | None:
        """None before there is anything to check."""
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
    """Time from the end of an operation to the start of the next one on the same connection, summed up."""

    def __init__(self) -> None:
        self.total = 0  #: nanoseconds
        self._ends: NDArray[np.int64] = np.zeros(0, dtype=np.int64)  #: of each connection's last operation; 0: none

    def absorb(self, records: Records) -> None:
        """Records in any order, but none that ended before one absorbed earlier on its connection."""
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
        self.total += int(gaps[(gaps > 0) & (gaps < _ANOTHER_LIFE)].sum())
        self._ends[connections] = ends

    def _make_room(self, connections: int) -> None:
        if connections > len(self._ends):
            self._ends = np.concatenate((self._ends, np.zeros(connections - len(self._ends), dtype=np.int64)))
