"""Where the values of each operation come from, and what is in the value pools that were sampled for it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from drumbeat.bench.model import (
    KeyValue,
    NewKey,
    Now,
    Operation,
    Pick,
    PoolValue,
    RandomNumber,
    RandomText,
    RandomUuid,
    SameAs,
    Value,
)
from drumbeat.web.pages.components import PageTable, TableColumn, short
from drumbeat.web.pages.frame import heading

_EXAMPLES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceholderSource:
    """One placeholder, and what stands in its place."""

    kind: str
    place: str
    source: str
    state: str


_COLUMNS = (
    TableColumn(name="operation", read=lambda each: each.kind),
    TableColumn(name="value", read=lambda each: each.place),
    TableColumn(name="source", read=lambda each: each.source),
    TableColumn(name="state", loose=True, read=lambda each: each.state),
)


def value_sources(operations: Sequence[Operation]) -> Iterator[PlaceholderSource]:
    """Every value of every operation, in order."""
    for operation in operations:
        for n, statement in enumerate(operation.statements, 1):
            several = f"statement {n}, " if len(operation.statements) > 1 else ""
            for place, value in enumerate(statement.values, 1):
                source, state = described(value)
                yield PlaceholderSource(kind=operation.kind, place=f"{several}${place}", source=source, state=state)


def described(value: Value) -> tuple[str, str]:
    """A source of values, and its state."""
    match value:
        case PoolValue(values=values) | Pick(values=values):
            examples = ", ".join(short(each, 20) for each in values[:_EXAMPLES])
            return "value pool", f"{len(values):,} values, {len(set(values)):,} different, such as {examples}"
        case KeyValue(low=low, high=high, distribution=distribution):
            return "existing key", f"{low:,} to {high:,}, {distribution}"
        case NewKey(first=first):
            return "new key", f"from {first:,}"
        case RandomNumber(low=low, high=high):
            return "random number", f"{low:,} to {high:,}"
        case RandomText(length=length):
            return "random text", f"{length:,} characters"
        case Now():
            return "now", "the moment of the operation"
        case SameAs():
            return "same as another value", "made for each operation"
        case RandomUuid():
            return "random UUID", "made for each operation"
        case _:
            return "mixed", "made for each operation"


def show_value_sources(operations: Sequence[Operation]) -> None:
    """A table of them; nothing where no operation has a value."""
    found = list(value_sources(operations))
    if found:
        heading("Value pools and other values", 2)
        PageTable("Values", _COLUMNS, key=lambda each: f"{each.kind} {each.place}").show(found)
