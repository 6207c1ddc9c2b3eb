"""Preflight warnings of runs that were just created, until the page of the run shows them."""

from collections import OrderedDict
from collections.abc import Sequence

from drumbeat.core.run import RunId

_MOST_RUNS = 1000  #: warnings of older runs are forgotten


class RunWarnings:
    """Keeps the warnings of a new run until its page shows them: a notification on the page before would be lost."""

    def __init__(self) -> None:
        self._warnings: OrderedDict[RunId, Sequence[str]] = OrderedDict()

    def add(self, run_id: RunId, warnings: Sequence[str]) -> None:
        """Keep the warnings of a run."""
        self._warnings[run_id] = warnings
        while len(self._warnings) > _MOST_RUNS:
            self._warnings.popitem(last=False)

    def take(self, run_id: RunId) -> Sequence[str]:
        """Return the warnings of a run and forget them."""
        return self._warnings.pop(run_id, ())
