"""The running totals a database keeps of itself, and what they rose by although it may begin them again. Pure.

A server that crashes, and one whose statistics are reset, counts from zero again. Totals that went down and were begun again
are taken to have risen by all they tell since; what was counted between the last look and the restart is lost, and
``RESETS`` says how often that was.
"""

from collections.abc import Mapping

RESETS = "server.resets"  #: how often totals were begun again
UPTIME = "Uptime"  #: seconds since the server was started, of one that tells no marks
SINCE = "since"  #: ``GROUP.since``: when a group of totals was begun, in seconds of any clock; not a total itself

Totals = Mapping[str, float]


class RunningTotals:
    """Totals that only rise, from looks at totals that may be begun again."""

    def __init__(self) -> None:
        self._last: Totals = {}
        self._marks: Totals = {}  #: of the first look: what is told goes on from there
        self._lost: dict[str, float] = {}  #: what was counted before totals were begun again
        self._resets = 0

    def seen(self, found: Totals) -> Totals:
        """The totals of this look, as though they had never been begun again; nothing where the server told nothing."""
        if not found:
            return {}
        again = [name for name in found if not is_mark(name) and was_begun_again(name, self._last, found)]
        self._resets += bool(again)
        for name in again:
            self._lost[name] = self._lost.get(name, 0.0) + self._last[name]
        self._last = {**self._last, **found}
        self._marks = {**{name: value for name, value in found.items() if is_mark(name)}, **self._marks}
        totals = {name: value + self._lost.get(name, 0.0) for name, value in found.items()}
        return {**totals, **self._marks, RESETS: float(self._resets)}


def rise(before: Totals, after: Totals) -> dict[str, float]:
    """What each total rose by between two looks, never less than nothing."""
    names = [name for name in after if name in before and not is_mark(name)]
    return {name: _risen(name, before, after) for name in names}


def _risen(name: str, before: Totals, after: Totals) -> float:
    return after[name] if was_begun_again(name, before, after) else max(after[name] - before[name], 0.0)


def is_mark(name: str) -> bool:
    """Whether it says when totals were begun, and is none itself."""
    return name.rpartition(".")[2] == SINCE


def was_begun_again(name: str, before: Totals, after: Totals) -> bool:
    """By the server's age, its group's mark, or a deep fall: a total that forgets a little (statements long unused) goes on."""
    if name not in before:
        return False
    if UPTIME in before and UPTIME in after and after[UPTIME] < before[UPTIME]:
        return True
    mark = f"{name.partition('.')[0]}.{SINCE}"
    if mark in before and mark in after and before[mark] != after[mark]:
        return True
    return after[name] < before[name] / 2
