"""Shows where the values of each operation come from: keys, lists of values, random values."""

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
from drumbeat.web.pages.plain_words import counted

_EXAMPLES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceholderSource:
    """A placeholder of a statement and the source of its value."""

    kind: str
    placeholder: str
    source: str
    details: str


_COLUMNS = (
    TableColumn(name="operation", read=lambda each: each.kind),
    TableColumn(name="placeholder", read=lambda each: each.placeholder),
    TableColumn(name="source", read=lambda each: each.source),
    TableColumn(name="details", loose=True, read=lambda each: each.details),
)


def value_sources(operations: Sequence[Operation]) -> Iterator[PlaceholderSource]:
    """Yield where the value of each SQL placeholder of each operation comes from, in order."""
    for operation in operations:
        for n, statement in enumerate(operation.statements, 1):
            prefix = f"statement {n}, " if len(operation.statements) > 1 else ""
            for number, value in enumerate(statement.values, 1):
                source, details = describe(value)
                name = f"{prefix}${number}"
                yield PlaceholderSource(kind=operation.kind, placeholder=name, source=source, details=details)


def describe(value: Value) -> tuple[str, str]:
    """Return in words where a parameter's value comes from, such as ``random number``, and details such as its range."""
    match value:
        case PoolValue(values=values) | Pick(values=values):
            examples = ", ".join(short(each, 20) for each in values[:_EXAMPLES])
            return "list of values", f"{counted(len(values), 'value')}, {len(set(values)):,} different, such as {examples}"
        case KeyValue(low=low, high=high, distribution=distribution):
            return "existing key", f"{low:,} to {high:,}, {distribution}"
        case NewKey(first=first):
            return "new key", f"from {first:,}"
        case RandomNumber(low=low, high=high):
            return "random number", f"{low:,} to {high:,}"
        case RandomText(length=length):
            return "random text", counted(length, "character")
        case Now():
            return "now", "time of the operation"
        case SameAs(index=index, plus=plus):
            added = f" and adds {plus:,}" if plus else ""
            return "same as another value", f"copies value {index}{added}; value 0 is the operation's first"
        case RandomUuid():
            return "random UUID", "generated for each operation"
        case _:
            return "mixed", "generated for each operation"


def show_value_sources(operations: Sequence[Operation]) -> None:
    """Show a table of where each parameter value of the operations comes from; nothing if they have no parameters."""
    found = list(value_sources(operations))
    if found:
        heading("Parameter values", 2)
        PageTable("Parameter values", _COLUMNS, key=lambda each: f"{each.kind} {each.placeholder}").show(found)
