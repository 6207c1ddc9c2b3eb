"""The running totals of a database's statistics, and their increase even if the server resets them. Pure.

After a crash or a reset of its statistics, a server counts from zero reset. A total that was reset counts as increased by its
new value; what was counted between the last reading and the reset is lost. ``RESETS`` says how often that happened.
"""

from collections.abc import Mapping

RESETS = "server.resets"  #: how often totals were reset
UPTIME = "Uptime"  #: seconds since the server started, for servers that do not report reset times
SINCE = "since"  #: ``GROUP.since``: when a group of totals was last reset, in seconds of any clock; not a total

Totals = Mapping[str, float]


class RunningTotals:
    """Converts totals that the server may reset to totals that only increase."""

    def __init__(self) -> None:
        self._last: Totals = {}
        self._marks: Totals = {}  #: the reset times of the first reading
        self._before_resets: dict[str, float] = {}  #: what was counted before resets
        self._resets = 0

    def update(self, found: Totals) -> Totals:
        """The totals of this reading as if they had never been reset; empty if the server reported none."""
        if not found:
            return {}
        reset = [name for name in found if not is_mark(name) and was_begun_again(name, self._last, found)]
        self._resets += bool(reset)
        for name in reset:
            self._before_resets[name] = self._before_resets.get(name, 0.0) + self._last[name]
        self._last = {**self._last, **found}
        self._marks = {**{name: value for name, value in found.items() if is_mark(name)}, **self._marks}
        totals = {name: value + self._before_resets.get(name, 0.0) for name, value in found.items()}
        return {**totals, **self._marks, RESETS: float(self._resets)}


def rise(before: Totals, after: Totals) -> dict[str, float]:
    """The increase of each total between two readings, never below 0."""
    names = [name for name in after if name in before and not is_mark(name)]
    return {name: _increase(name, before, after) for name in names}


def _increase(name: str, before: Totals, after: Totals) -> float:
    return after[name] if was_begun_again(name, before, after) else max(after[name] - before[name], 0.0)


def is_mark(name: str) -> bool:
    """Whether this is the reset time of a group and not a total."""
    return name.rpartition(".")[2] == SINCE


def was_begun_again(name: str, before: Totals, after: Totals) -> bool:
    """Whether a total was reset: by uptime, reset time, or a drop below half. A small drop (evicted statements) is no reset."""
    if name not in before:
        return False
    if UPTIME in before and UPTIME in after and after[UPTIME] < before[UPTIME]:
        return True
    mark = f"{name.partition('.')[0]}.{SINCE}"
    if mark in before and mark in after and before[mark] != after[mark]:
        return True
    return after[name] < before[name] / 2
