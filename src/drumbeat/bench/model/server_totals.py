"""Computes how much a database's statistics (running totals) increased, even if the server has reset them. No I/O.

After a crash or a reset, a server counts from zero again. A total that was reset counts as increased by its new value; what
was counted between the last reading and the reset is lost. The total ``RESETS`` counts the resets.
"""

from collections.abc import Mapping

RESETS = "server.resets"  #: the name of the total that says how often the server reset its totals
UPTIME = "Uptime"  #: seconds since the server started, for servers that do not report reset times
SINCE = "since"  #: a value named ``GROUP.since`` is no total but the time of the group's last reset, in seconds of any clock

Totals = Mapping[str, float]


class RunningTotals:
    """Adds what a server counted before a reset to all later readings, so that its totals never start again from zero."""

    def __init__(self) -> None:
        self._last: Totals = {}
        self._marks: Totals = {}  #: the reset times of the first reading
        self._before_resets: dict[str, float] = {}  #: by total: what was counted before it was reset
        self._resets = 0

    def update(self, found: Totals) -> Totals:
        """Add a reading, and return its totals as if they had never been reset; empty if the server reported none."""
        if not found:
            return {}
        reset = [name for name in found if not is_mark(name) and was_reset(name, self._last, found)]
        self._resets += bool(reset)
        for name in reset:
            self._before_resets[name] = self._before_resets.get(name, 0.0) + self._last[name]
        self._last = {**self._last, **found}
        self._marks = {**{name: value for name, value in found.items() if is_mark(name)}, **self._marks}
        totals = {name: value + self._before_resets.get(name, 0.0) for name, value in found.items()}
        return {**totals, **self._marks, RESETS: float(self._resets)}


def rise(before: Totals, after: Totals) -> dict[str, float]:
    """Return the increase of each total between two readings, never below 0."""
    names = [name for name in after if name in before and not is_mark(name)]
    return {name: _increase(name, before, after) for name in names}


def _increase(name: str, before: Totals, after: Totals) -> float:
    return after[name] if was_reset(name, before, after) else max(after[name] - before[name], 0.0)


def is_mark(name: str) -> bool:
    """Whether ``name`` has the form ``GROUP.since``: the time when the totals of a group were last reset, not a total."""
    return name.rpartition(".")[2] == SINCE


def was_reset(name: str, before: Totals, after: Totals) -> bool:
    """Whether the server reset a total: its uptime fell, the reset time changed, or the total is below half of ``before``."""
    if name not in before:
        return False
    if UPTIME in before and UPTIME in after and after[UPTIME] < before[UPTIME]:
        return True
    mark = f"{name.partition('.')[0]}.{SINCE}"
    if mark in before and mark in after and before[mark] != after[mark]:
        return True
    return after[name] < before[name] / 2
