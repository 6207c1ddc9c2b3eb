"""A table of a standard workload: its DDL, and its rows as a function of the row number."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Rows = Callable[[int, int], Iterable[Sequence[Any]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StandardTable:
    """A table that ``bench prepare`` creates and fills.

    Portable types: the DDL uses BIGINT, INTEGER, DOUBLE PRECISION, TEXT, VARCHAR(n), CHAR(n), TIMESTAMP and NUMERIC(p,s),
    CREATE TABLE, CREATE INDEX and PRIMARY KEY, and nothing else; a target translates them to its own types. Rows contain int,
    float, str, naive datetime (in UTC) and None.
    """

    name: str
    ddl: tuple[str, ...]
    columns: tuple[str, ...]
    key: tuple[str, ...]  #: whole numbers that identify rows; rows come in key order
    rows: Rows  #: rows from the first number up to, but without, the second; always the same
    count: int
    changes: bool = False  #: whether the load adds or deletes rows

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
    """A table from its columns' types; its key is the primary key if it is unique."""
    primary = [f"PRIMARY KEY ({', '.join(key)})"] if unique else []
    body = ", ".join([*(f"{column} {kind}" for column, kind in columns.items()), *primary])
    ddl = [f"CREATE TABLE {name} ({body})", *(_index(name, index) for index in indexes)]
    return StandardTable(name=name, ddl=tuple(ddl), columns=tuple(columns), key=key, rows=rows, count=count, changes=changes)


def _index(table: str, columns: tuple[str, ...]) -> str:
    return f"CREATE INDEX {table}_by_{columns[-1]} ON {table} ({', '.join(columns)})"
