"""Which failure was the most frequent, and what the database said of it. Pure."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from drumbeat.bench.model.record import RunRecord
from drumbeat.core.run import Phase


class Example(Protocol):
    """One failed operation, as samples keep it."""

    @property
    def error_class(self) -> str: ...
    @property
    def sqlstate(self) -> str: ...
    @property
    def message(self) -> str: ...


_Sort = tuple[str, str | None]  #: a class, and a code where those are counted


@dataclass(frozen=True, slots=True, kw_only=True)
class TopError:
    """The failure that was seen most."""

    error_class: str
    sqlstate: str  #: of the example; empty: it has none
    message: str  #: the example's; empty: no example was kept
    count: int  #: of its class, or of its class and code where those are counted
    errors: int  #: in all

    @property
    def words(self) -> str:
        name = f"{self.error_class} {self.sqlstate}".strip()
        return f"most frequent error: {name}, {self.count:,} of {self.errors:,}: {self.message or 'no text was kept'}"


def most_frequent(record: RunRecord) -> TopError | None:
    """Of a run's measurement; None: nothing failed, or nobody knows how."""
    return _first(Counter({(name, None): count for name, count in errors_by_class(record).items()}), record.failures)


def errors_by_class(record: RunRecord) -> Mapping[str, int]:
    """How many operations failed of each class while it was measured: by the workers' own counts, else second by second."""
    told, seen = Counter[str](), Counter[str]()
    for worker in record.workers:
        told.update(worker.extra.get("error_classes") or {})
    for second in record.timeline:
        if second.phase == Phase.MEASUREMENT:
            seen.update(second.errors_by_class)
    return dict(sorted((told if told.total() == record.whole.errors else seen).items()))


def most_frequent_state(
    states: Mapping[tuple[int, str], int], classify: Callable[[int, str], str | None], examples: Iterable[Example]
) -> TopError | None:
    """Of failures counted by outcome and SQLSTATE; None: there are none."""
    counted = Counter[_Sort]()
    for (outcome, sqlstate), count in states.items():
        counted[classify(outcome, sqlstate) or "FATAL", sqlstate] += count
    return _first(counted, examples)


def _first(counted: Counter[_Sort], examples: Iterable[Example]) -> TopError | None:
    if not counted.total():
        return None
    (name, code), count = counted.most_common(1)[0]
    alike = [each for each in examples if each.error_class == name and code in (None, each.sqlstate)]
    known = next((each for each in alike if each.message), None)
    sqlstate = code if code is not None else known.sqlstate if known else ""
    message = known.message if known else ""
    return TopError(error_class=str(name), sqlstate=sqlstate, message=message, count=count, errors=counted.total())
