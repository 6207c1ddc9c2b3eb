"""Lists the tables of a database under test, with a separate query for each database product."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from drumbeat.bench.targets.interface import Target
from drumbeat.bench.targets.placeholders import quoted_part

_POSTGRES = """
SELECT n.nspname, c.relname, c.reltuples::bigint FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.relkind IN ('r', 'p') AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg_toast%'
 ORDER BY 1, 2 LIMIT 1000
"""
_MYSQL = """
SELECT table_schema, table_name, table_rows FROM information_schema.tables
 WHERE table_schema = DATABASE() AND table_type = 'BASE TABLE' ORDER BY 1, 2 LIMIT 1000
"""
_SQLITE = """
SELECT '', name, NULL FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite!_%' ESCAPE '!' ORDER BY 2 LIMIT 1000
"""
_DUCKDB = "SELECT schema_name, table_name, estimated_size FROM duckdb_tables() WHERE NOT internal ORDER BY 1, 2 LIMIT 1000"
_SNOWFLAKE = """
SELECT table_schema, table_name, row_count FROM information_schema.tables
 WHERE table_type = 'BASE TABLE' AND table_schema <> 'INFORMATION_SCHEMA' ORDER BY 1, 2 LIMIT 1000
"""
_PLAIN_IN_SNOWFLAKE = re.compile(r"[A-Z_][A-Z0-9_$]*")  #: Snowflake turns other names without quotes into these
_QUOTES = ('"', "`")
_TABLES: Mapping[str, str] = {
    "postgresql": _POSTGRES,
    "mysql": _MYSQL,
    "sqlite": _SQLITE,
    "duckdb": _DUCKDB,
    "snowflake": _SNOWFLAKE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableName:
    """A table and its estimated number of rows; None if the database has no estimate."""

    schema: str | None
    name: str
    rows: int | None
    reference: str  #: the table as a template names it: with its schema, and with quotes around a part that needs them


async def tables_of(target: Target) -> Sequence[TableName]:
    """Return the user tables of a database, sorted by schema and name: at most 1000, and no system tables."""
    product = target.traits.name
    return [
        TableName(schema=schema or None, name=name, rows=_estimate(count), reference=_reference(schema, name, product))
        for schema, name, count in await target.fetch(_TABLES[product])
    ]


def _reference(schema: str | None, name: str, product: str) -> str:
    return ".".join(_quoted_if_needed(part, product) for part in (schema, name) if part)


def _quoted_if_needed(part: str, product: str) -> str:
    is_plain = (
        bool(_PLAIN_IN_SNOWFLAKE.fullmatch(part)) if product == "snowflake" else "." not in part and part[0] not in _QUOTES
    )
    return part if is_plain else quoted_part(part)


def _estimate(count: int | None) -> int | None:
    """Return the estimated row count, or None if unknown: PostgreSQL reports -1 for a table that was never analysed."""
    return None if count is None or count < 0 else int(count)
