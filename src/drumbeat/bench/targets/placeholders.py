"""Statements in a driver's own words: placeholders by position, names quoted, transactions found."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from drumbeat.bench.model import Load, Operation

_TOKENS = re.compile(
    r"""'(?:[^']|'')*' | "(?:[^"]|"")*" | `(?:[^`]|``)*` | --[^\n]* | /\*.*?\*/ | \$(?P<number>\d+)""", re.VERBOSE | re.DOTALL
)
_CONTROL = re.compile(r"\s*(BEGIN|START\s+TRANSACTION|COMMIT|END)(\s+(WORK|TRANSACTION))?\s*;?\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class OperationStep:
    """One statement of an operation."""

    place: int  #: among the operation's statements
    sql: str
    order: tuple[int, ...]  #: which value each placeholder takes
    in_order: bool  #: whether that is all of them, as they come

    def arguments(self, values: Sequence[Any]) -> Sequence[Any]:
        return values if self.in_order else [values[place] for place in self.order]


@dataclass(frozen=True, slots=True)
class OperationScript:
    """One operation: its statements, and whether they belong together."""

    kind: str
    reads: bool
    steps: tuple[OperationStep, ...]
    is_transaction: bool


def positional(sql: str) -> tuple[str, tuple[int, ...]]:
    """$1, $2 … as question marks, and which value each of them takes. What is quoted or a comment stays as it is."""
    order: list[int] = []

    def replaced(found: re.Match[str]) -> str:
        if found["number"] is None:
            return found[0]
        order.append(int(found["number"]) - 1)
        return "?"

    return _TOKENS.sub(replaced, sql), tuple(order)


def scripts(load: Load, *, numbered: bool = False) -> tuple[OperationScript, ...]:
    """The operations a load uses. ``numbered``: the database takes $1, $2 … as they are."""
    return tuple(_script(operation, numbered) for operation in load.used)


def _script(operation: Operation, numbered: bool) -> OperationScript:
    """BEGIN and COMMIT, where they are written out, are the driver's to say."""
    texts = [(place, each) for place, each in enumerate(operation.statements) if not _CONTROL.fullmatch(each.sql)]
    steps = tuple(_step(place, each.sql, len(each.values), numbered) for place, each in texts)
    return OperationScript(operation.kind, operation.reads, steps, len(operation.statements) > 1)


def _step(place: int, sql: str, values: int, numbered: bool) -> OperationStep:
    usual = tuple(range(values))
    text, order = (sql, usual) if numbered else positional(sql)
    return OperationStep(place, text, order, order == usual)


def quoted(name: str, mark: str = '"') -> str:
    """A name, its schema and itself quoted apart, as the database takes any name."""
    return ".".join(mark + part.replace(mark, mark * 2) + mark for part in name.split("."))


def insert_sql(table: str, columns: Sequence[str], mark: str = '"', placeholder: str = "?") -> str:
    """An INSERT of one row."""
    names = ", ".join(quoted(column, mark) for column in columns)
    return f"INSERT INTO {quoted(table, mark)} ({names}) VALUES ({', '.join([placeholder] * len(columns))})"  # noqa: S608
