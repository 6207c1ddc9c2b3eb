"""Adapts statements to a database driver: placeholder style, quoted names, transactions."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from drumbeat.bench.model import Load, Operation
from drumbeat.bench.model.sql_text import name_parts, placeholders, replace_numbers, without_comments

_CONTROL = re.compile(r"\s*(BEGIN|START\s+TRANSACTION|COMMIT|END)(\s+(WORK|TRANSACTION))?\s*;?\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class OperationStep:
    """One statement of an operation, with its SQL in the database driver's placeholder style."""

    index: int  #: the statement's position in the operation
    sql: str
    order: tuple[int, ...]  #: for each placeholder, the index of its value in the statement's values
    in_order: bool  #: whether ``order`` is 0, 1, 2 …, so that values need no reordering

    def arguments(self, values: Sequence[Any]) -> Sequence[Any]:
        return values if self.in_order else [values[index] for index in self.order]


@dataclass(frozen=True, slots=True)
class OperationScript:
    """One kind of operation: its statements, and whether the session must run them in a transaction."""

    kind: str
    reads: bool
    steps: tuple[OperationStep, ...]
    is_transaction: bool


def positional(sql: str) -> tuple[str, tuple[int, ...]]:
    """Replace $1, $2 … by ?, except in quotes and comments. Returns the SQL and, for each ?, the index of its value."""
    order = tuple(int(number) - 1 for number in placeholders(sql))
    return replace_numbers(sql, lambda number: "?"), order


def scripts(load: Load, *, numbered: bool = False) -> tuple[OperationScript, ...]:
    """Convert a load's operations for a database driver. With ``numbered``, placeholders stay $1, $2 …; else they become ?."""
    return tuple(_script(operation, numbered) for operation in load.used)


def _script(operation: Operation, numbered: bool) -> OperationScript:
    """Make the script of one operation without its BEGIN and COMMIT, because the session begins and commits transactions."""
    texts = [
        (index, each) for index, each in enumerate(operation.statements) if not _CONTROL.fullmatch(without_comments(each.sql))
    ]
    steps = tuple(_step(index, each.sql, len(each.values), numbered) for index, each in texts)
    return OperationScript(operation.kind, operation.reads, steps, len(operation.statements) > 1)


def _step(index: int, sql: str, values: int, numbered: bool) -> OperationStep:
    in_order = tuple(range(values))
    text, order = (sql, in_order) if numbered else positional(sql)
    return OperationStep(index, text, order, order == in_order)


def quoted(name: str, mark: str = '"') -> str:
    """Quote the name of a table. In SCHEMA.TABLE, each part is quoted separately; dots in quotes divide no parts."""
    return ".".join(quoted_part(part.text, mark) for part in name_parts(name))


def quoted_part(name: str, mark: str = '"') -> str:
    """Quote one name as a whole, such as that of a column. It can contain dots and quotes."""
    return mark + name.replace(mark, mark * 2) + mark


def insert_sql(table: str, columns: Sequence[str], mark: str = '"', placeholder: str = "?") -> str:
    """Return the SQL of an INSERT of one row, with a placeholder for each column."""
    names = ", ".join(quoted_part(column, mark) for column in columns)
    return f"INSERT INTO {quoted(table, mark)} ({names}) VALUES ({', '.join([placeholder] * len(columns))})"  # noqa: S608
