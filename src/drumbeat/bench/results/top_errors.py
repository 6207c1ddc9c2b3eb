"""Finds the most frequent error of a run, with an example message of the database. Pure."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from drumbeat.bench.model.record import RunRecord
from drumbeat.core.run import Phase


class Example(Protocol):
    """A failed operation, stored as an example of an error: its error class, SQLSTATE and message."""

    @property
    def error_class(self) -> str: ...
    @property
    def sqlstate(self) -> str: ...
    @property
    def message(self) -> str: ...


_ErrorKey = tuple[str, str | None]  #: an error class, with the SQLSTATE if errors are counted by SQLSTATE, else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopError:
    """The most frequent error, with how often it occurred and an example."""

    error_class: str
    sqlstate: str  #: of the example; empty if it has none
    message: str  #: of the example; empty if no example was recorded
    count: int  #: how often this error occurred
    errors: int  #: number of errors of all classes together

    @property
    def words(self) -> str:
        name = f"{self.error_class} {self.sqlstate}".strip()
        return f"most frequent error: {name}, {self.count:,} of {self.errors:,}: {self.message or 'no message was recorded'}"


def most_frequent(record: RunRecord) -> TopError | None:
    """Return the most frequent error of a run; None if no operation failed or error classes were not recorded."""
    return _first(Counter({(name, None): count for name, count in errors_by_class(record).items()}), record.failures)


def errors_by_class(record: RunRecord) -> Mapping[str, int]:
    """Count failed operations by error class. The counts come from the result of an ended run, else from the workers' totals if
    these include all errors, else from the timeline."""
    if isinstance(stored := record.stored_metrics.get("error_classes"), Mapping):
        return stored
    by_workers, by_seconds = Counter[str](), Counter[str]()
    for worker in record.workers:
        by_workers.update(worker.extra.get("error_classes") or {})
    for second in record.timeline:
        if second.phase == Phase.MEASUREMENT:
            by_seconds.update(second.errors_by_class)
    return dict(sorted((by_workers if by_workers.total() == record.whole.errors else by_seconds).items()))


def most_frequent_state(
    states: Mapping[tuple[int, str], int], classify: Callable[[int, str], str | None], examples: Iterable[Example]
) -> TopError | None:
    """Return the most frequent error, from errors counted by outcome and SQLSTATE; None without errors."""
    counted = Counter[_ErrorKey]()
    for (outcome, sqlstate), count in states.items():
        counted[classify(outcome, sqlstate) or "FATAL", sqlstate] += count
    return _first(counted, examples)


def _first(counted: Counter[_ErrorKey], examples: Iterable[Example]) -> TopError | None:
    if not counted.total():
        return None
    (name, code), count = counted.most_common(1)[0]
    alike = [each for each in examples if each.error_class == name and code in (None, each.sqlstate)]
    known = next((each for each in alike if each.message), None)
    sqlstate = code if code is not None else known.sqlstate if known else ""
    message = known.message if known else ""
    return TopError(error_class=str(name), sqlstate=sqlstate, message=message, count=count, errors=counted.total())
