"""Runs named queries on a Snowflake cursor. Snowflake has no RETURNING, so one query may change rows and then read them."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any

from drumbeat.store.sql.database import Bulk, MayConflict, Row, Rows, Values
from drumbeat.store.sql.queries import Query
from drumbeat.store.sql.rows import dump

_CONDITION = re.compile(r"/\*if (any|none|:\w+)\*/\s*")
_VALUE = re.compile(r"(?P<limit>\b(?:LIMIT|OFFSET) )?(?<![:\w]):(?P<name>[a-z]\w*)(?P<form>\.\.\.|\{\})?")
_READS = ("SELECT", "WITH", "SHOW")
_MOST_VALUES = 60_000  #: a statement with more values is uploaded to a stage, which needs a privilege and may commit
_MOST_BYTES = 4_000_000  #: a statement gets no more rows once their JSON text has this size


@dataclass(frozen=True, slots=True)
class _Statement:
    """One statement of a query, and the condition under which it runs."""

    #: ``any``: the query ends here if the statement before found or changed no row; ``none``: runs only in that case;
    #: ``:name``: runs only if this value is not None; empty: always runs
    condition: str
    text: str
    reads: bool


class ResultRow:
    """One row of a result. Its columns are read by name or position."""

    __slots__ = ("_columns", "_values")

    def __init__(self, columns: Mapping[str, int], values: tuple[Any, ...]) -> None:
        self._columns = columns
        self._values = values

    def __getitem__(self, column: Any, /) -> Any:
        return self._values[self._columns[column]] if isinstance(column, str) else self._values[column]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


_CHANGED = ResultRow({}, ())  #: stands for one changed row, whose values were not read


def run_query(cursor: Any, query: Query, values: Values | Bulk | MayConflict) -> Rows:
    """Run the statements of a query in order. Returns the rows of the last SELECT that ran. If no SELECT ran, returns an empty
    row for each row that the last statement changed, so that the caller can count the changed rows."""
    if isinstance(values, Bulk):
        return [{"new": sum(_run_bulk(cursor, query, values))}]
    known = dict(values.values if isinstance(values, MayConflict) else values)
    found: Rows | None = None
    count = 0
    for each in query.statements:
        statement = _parse(each.text)
        if statement.condition == "any" and not count:
            return ()
        if (statement.condition == "none" and count) or _is_missing(statement.condition, known):
            continue
        sql, bound = render(statement.text, known)
        cursor.execute(sql, bound or None)
        if statement.reads:
            found = fetch_rows(cursor)
            known["chosen"] = [row[0] for row in found]
            count = len(found)
        else:
            count = cursor.rowcount or 0
    return [_CHANGED] * count if found is None else found


def fetch_rows(cursor: Any) -> list[Row]:
    """Return the rows of the last statement; names of columns are in lower case."""
    columns = {str(column[0]).lower(): place for place, column in enumerate(cursor.description)}
    return [ResultRow(columns, plain(row)) for row in cursor.fetchall()]


def plain(row: Sequence[Any]) -> tuple[Any, ...]:
    """Return the values of a row as SQLite would give them: numbers as int or float, binary values as bytes."""
    return tuple(_PLAIN[kind](value) if (kind := type(value)) in _PLAIN else value for value in row)


def render(text: str, values: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """Return a statement with ``?`` for each value, and the values in this order."""
    bound: list[Any] = []

    def bind(found: re.Match[str]) -> str:
        value = values[found["name"]]
        if found["limit"]:
            return f"{found['limit']}{int(value)}"
        match found["form"]:
            case "...":
                listed = json.loads(value) if isinstance(value, str) else value
                bound.extend(listed)
                return ", ".join("?" * len(listed)) or "NULL"
            case "{}":
                bound.append(flat_json(value))
            case _:
                bound.append(value)
        return "?"

    return _VALUE.sub(bind, text), bound


def flat_json(text: str) -> str:
    """Return a JSON list of rows in which each nested object or list is replaced by its JSON text, which Snowflake then stores
    unchanged."""
    return dump([_flat(row) for row in json.loads(text)])


def _flat(row: Any) -> Any:
    if isinstance(row, Mapping):
        return {name: _flat_value(value) for name, value in row.items()}
    return [_flat_value(value) for value in row]


def _flat_value(value: Any) -> Any:
    return dump(value) if isinstance(value, (dict, list)) else value


def _run_bulk(cursor: Any, query: Query, bulk: Bulk) -> Iterator[int]:
    (statement,) = query.statements
    if ":records{}" not in statement.text:
        text, at_once = statement.in_order(bulk.columns), max(1, _MOST_VALUES // len(bulk.columns))
        for start in range(0, len(bulk.records), at_once):
            cursor.executemany(text, bulk.records[start : start + at_once])
            yield cursor.rowcount or 0
        return
    for some in _chunks(bulk.records):
        cursor.execute(_VALUE.sub("?", statement.text), [some])
        yield cursor.rowcount or 0


def _chunks(records: Sequence[tuple[Any, ...]]) -> Iterator[str]:
    """Yield the records as JSON lists. A list ends with the record that brings its size to ``_MOST_BYTES``."""
    rows: list[str] = []
    size = 0
    for record in records:
        rows.append(dump(record))
        size += len(rows[-1])
        if size >= _MOST_BYTES:
            yield f"[{','.join(rows)}]"
            rows, size = [], 0
    if rows:
        yield f"[{','.join(rows)}]"


def _is_missing(condition: str, values: Mapping[str, Any]) -> bool:
    return condition.startswith(":") and values[condition[1:]] is None


@lru_cache(maxsize=1024)
def _parse(text: str) -> _Statement:
    found = _CONDITION.match(text)
    bare = text[found.end() :] if found else text
    return _Statement(found[1] if found else "", bare, bare.lstrip().upper().startswith(_READS))


def _number(value: Decimal) -> int | float:
    return int(value) if value == value.to_integral_value() else float(value)


_PLAIN: Mapping[type, Any] = {Decimal: _number, bytearray: bytes}
