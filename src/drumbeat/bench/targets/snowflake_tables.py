"""Describes Snowflake's tables (columns, keys, kind), and rewrites portable DDL for standard and hybrid tables."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from drumbeat.bench.model import ValueType
from drumbeat.bench.targets.interface import Column, TableDescription
from drumbeat.bench.targets.snowflake_address import quoted_part, quoted_stored
from drumbeat.core.errors import InvalidInput

Row = Mapping[str, Any]  #: a row of SHOW or DESCRIBE, by column name

_DOT = re.compile(r'\.(?=(?:[^"]*"[^"]*")*[^"]*$)')  #: a dot that an even number of quotes follows
_PLAIN_STORED = re.compile(r"[A-Z_][A-Z0-9_$]*")
_NUMBER = re.compile(r"NUMBER\((\d+),\s*(\d+)\)")
_INT_DIGITS = 9  #: a NUMBER of so many digits fits into four bytes
_CREATE_TABLE = re.compile(r"\s*(?P<create>CREATE\s+TABLE)\s+(IF\s+NOT\s+EXISTS\s+)?(?P<name>[^\s(]+)", re.IGNORECASE)
_CREATE_INDEX = re.compile(r"\s*CREATE\s+(UNIQUE\s+)?INDEX\s.*?\sON\s+(?P<table>[^\s(]+)", re.IGNORECASE | re.DOTALL)
_KEY = re.compile(r"\bPRIMARY\s+KEY\b", re.IGNORECASE)
_READ_ONLY = {
    "interactive": "is an interactive table, which can only be read",
    "dynamic": "is a dynamic table, which can only be read",
}


def name_parts(name: str) -> list[str]:
    """Split a name such as SCHEMA.TABLE at its dots, except at dots in quotes."""
    return _DOT.split(name)


def quoted(name: str) -> str:
    """Quote a table or column name; in SCHEMA.TABLE each part separately."""
    return ".".join(quoted_part(part) for part in name_parts(name))


def like_pattern(stored: str) -> str:
    """Return a stored name as a quoted pattern for SHOW … LIKE. A % or _ in the name is escaped, so that it matches itself."""
    plain = stored.replace("\\", "\\\\").replace("'", "''")
    return "'" + plain.replace("_", "\\\\_").replace("%", "\\\\%") + "'"


def shown_name(stored: str) -> str:
    """Return a stored name as people write it: in lower case if it needs no quotes, else in quotes."""
    return stored.lower() if _PLAIN_STORED.fullmatch(stored) else quoted_stored(stored)


def column_of(row: Row) -> Column:
    """Return a column, from its row of DESCRIBE TABLE."""
    native = str(row["type"])
    return Column(
        name=shown_name(str(row["name"])), type=value_type(native), native_type=native.lower(), nullable=row["null?"] == "Y"
    )


def value_type(native: str) -> ValueType:
    """Return how values of a Snowflake type are generated and bound."""
    upper = native.upper()
    if found := _NUMBER.match(upper):
        precision, scale = int(found[1]), int(found[2])
        return ValueType.FLOAT if scale else ValueType.INT if precision <= _INT_DIGITS else ValueType.BIGINT
    if upper.startswith(("FLOAT", "DOUBLE", "REAL", "DECFLOAT")):
        return ValueType.FLOAT
    return ValueType.TIMESTAMP if upper.startswith(("TIMESTAMP", "DATE")) else ValueType.TEXT


def table_kind(row: Row) -> str:
    """Return standard, hybrid, interactive or dynamic, from the table's row of SHOW TABLES. If an ``is_*`` column is missing,
    as in older accounts, the table is not of that kind."""
    return next((kind for kind in ("hybrid", "interactive", "dynamic") if row.get(f"is_{kind}") == "Y"), "standard")


def description_of(
    table: str, columns: Sequence[Row], keys: Sequence[Row], shown: Row | None, bounds: tuple[int | None, int | None]
) -> TableDescription:
    """Return a table's description, from what DESCRIBE TABLE, SHOW PRIMARY KEYS and SHOW TABLES said."""
    kind = table_kind(shown) if shown is not None else "standard"
    rows = shown.get("rows") if shown is not None else None
    return TableDescription(
        name=table,
        columns=tuple(column_of(row) for row in columns),
        key=single_key(keys),
        key_low=bounds[0],
        key_high=bounds[1],
        rows=int(rows) if rows is not None else None,
        read_only=_READ_ONLY.get(kind),
    )


def single_key(keys: Sequence[Row]) -> str | None:
    """Return the column of the primary key; None if the key has several columns, or if the table has no key."""
    return shown_name(str(keys[0]["column_name"])) if len(keys) == 1 else None


def snowflake_ddl(statements: Sequence[str], kind: str) -> list[str]:
    """Rewrite portable DDL for standard or hybrid tables. Standard tables have no indexes, so those are left out.

    A table without a primary key stays a standard table, because Snowflake refuses it as a hybrid one. Raises InvalidInput for
    interactive tables: Snowflake creates them from a query, and they cannot be filled row by row.
    """
    if kind == "interactive":
        raise InvalidInput(
            "interactive tables are created from a query; prepare standard tables (tables=standard), then run: "
            "CREATE INTERACTIVE TABLE NAME CLUSTER BY (KEY) AS SELECT * FROM PREPARED_TABLE"
        )
    if kind == "standard":
        return [each for each in statements if not _CREATE_INDEX.match(each)]
    keyless = {found["name"].lower() for each in statements if (found := _CREATE_TABLE.match(each)) and not _KEY.search(each)}
    return [_hybrid(each, keyless) for each in statements if _indexed_table(each) not in keyless]


def _hybrid(statement: str, keyless: set[str]) -> str:
    found = _CREATE_TABLE.match(statement)
    if found is None or found["name"].lower() in keyless:
        return statement
    return "CREATE HYBRID TABLE" + statement[found.end("create") :]


def _indexed_table(statement: str) -> str | None:
    found = _CREATE_INDEX.match(statement)
    return found["table"].lower() if found else None
