"""A table of a standard workload: its DDL, and its rows as a function of the row number."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Rows = Callable[[int, int], Iterable[Sequence[Any]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StandardTable:
    """A table that ``bench prepare`` creates and fills.

    Its DDL uses only CREATE TABLE, CREATE INDEX, PRIMARY KEY, BIGINT, INTEGER, DOUBLE PRECISION, TEXT, VARCHAR(n), CHAR(n),
    TIMESTAMP and NUMERIC(p,s), so that every target can translate it. Rows contain int, float, str, naive datetime (UTC), None.
    """

    name: str
    ddl: tuple[str, ...]
    columns: tuple[str, ...]
    key: tuple[str, ...]  #: the columns that identify a row, all whole numbers; rows are generated in key order
    rows: Rows  #: generates rows by number, from ``begin`` up to before ``end``; always the same rows
    count: int
    changes: bool = False  #: whether the load adds rows to this table or deletes rows from it

    @property
    def key_indexes(self) -> tuple[int, ...]:
        return tuple(self.columns.index(name) for name in self.key)


def table(
    name: str,
    columns: Mapping[str, str],
    *,
    key: tuple[str, ...],
    rows: Rows,
    count: int,
    unique: bool = True,
    indexes: tuple[tuple[str, ...], ...] = (),
    changes: bool = False,
) -> StandardTable:
    """Describe a table by its columns and their SQL types; ``key`` becomes the primary key if it is ``unique``. ``changes``:
    the benchmark adds rows to the table or deletes rows from it."""
    primary = [f"PRIMARY KEY ({', '.join(key)})"] if unique else []
    body = ", ".join([*(f"{column} {kind}" for column, kind in columns.items()), *primary])
    ddl = [f"CREATE TABLE {name} ({body})", *(_index(name, index) for index in indexes)]
    return StandardTable(name=name, ddl=tuple(ddl), columns=tuple(columns), key=key, rows=rows, count=count, changes=changes)


def _index(table: str, columns: tuple[str, ...]) -> str:
    return f"CREATE INDEX {table}_by_{columns[-1]} ON {table} ({', '.join(columns)})"
