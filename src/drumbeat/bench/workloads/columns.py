"""Chooses generated values for a column by its type and length, and quotes names and casts arguments for a database."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from drumbeat.bench.model import LARGEST, NewKey, Now, RandomNumber, RandomText, RandomUuid, Value, ValueType
from drumbeat.bench.targets.interface import Column
from drumbeat.bench.values.draw import VIRTUAL_SLOTS

LONGEST_TEXT = 32  #: the length of a generated text, even if the column allows more
_MOST = 1_000_000  #: the largest generated number
_SPANS = {ValueType.INT: 4_000_000, ValueType.BIGINT: 1_000_000_000}  #: how many new keys each of up to 64 workers may use
_FEWEST_KEYS = 10_000  #: with fewer keys per worker, a run would soon run out of keys
_SHORTEST_KEY = 16  #: shorter random texts would collide sooner or later

_SIZES = re.compile(r"\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")
_TEXTS = frozenset(
    {"text", "varchar", "char", "bpchar", "character", "character varying", "string", "clob", "nvarchar", "nchar", "name"}
    | {"tinytext", "mediumtext", "longtext", "citext", ""}
)
_BOOLEANS = frozenset({"bool", "boolean"})
_SMALL = {"tinyint": 127, "int1": 127, "smallint": 32_767, "int2": 32_767, "mediumint": 8_388_607, "int3": 8_388_607}
_DECIMALS = frozenset({"numeric", "decimal", "dec", "number"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlDialect:
    """A database's SQL dialect: how names are quoted and arguments are cast."""

    quote: str = '"'
    upper: bool = False  #: whether a plain name is stored in upper case, so that it is quoted in upper case
    casts: Mapping[ValueType, frozenset[str]] | None = None  #: column types that need no cast, by argument type; None: no casts


_POSTGRESQL: Mapping[ValueType, frozenset[str]] = {
    ValueType.INT: frozenset({"int4", "integer"}),
    ValueType.BIGINT: frozenset({"int8", "bigint"}),
    ValueType.FLOAT: frozenset({"float8", "double precision"}),
    ValueType.TEXT: frozenset({"text", "varchar", "character varying"}),
    ValueType.TIMESTAMP: frozenset({"timestamp", "timestamp without time zone"}),
}

WORDS: Mapping[str, SqlDialect] = {
    "postgresql": SqlDialect(casts=_POSTGRESQL),
    "mysql": SqlDialect(quote="`"),
    "snowflake": SqlDialect(upper=True),
}


def dialect_of(target: str) -> SqlDialect:
    """Return the SQL dialect of a target (a database product) by its name; standard SQL for an unknown one."""
    return WORDS.get(target, SqlDialect())


def quoted_name(name: str, words: SqlDialect) -> str:
    """Quote the name of a column or table; a schema and its table are quoted separately."""
    quote = words.quote
    if words.upper:
        return ".".join(part if part[:1] == quote else f"{quote}{part.upper()}{quote}" for part in name.split("."))
    return ".".join(quote + part.replace(quote, quote * 2) + quote for part in name.split("."))


def argument(column: Column, number: int, words: SqlDialect) -> str:
    """Return the placeholder for a column's value, cast to the column's type if the database needs that to use an index."""
    if words.casts is None or _base(column) in words.casts[column.type]:
        return f"${number}"
    return f"CAST(${number} AS {column.native_type})"


def generated(column: Column) -> Value | None:
    """Return a source of generated values for the column, by its type and length; None if its type is not supported."""
    base = _base(column)
    if base in _BOOLEANS:
        return RandomNumber(high=1)
    match column.type:
        case ValueType.INT | ValueType.BIGINT:
            return RandomNumber(high=min(_MOST, _SMALL.get(base, _MOST)), type=column.type)
        case ValueType.FLOAT:
            return _fraction(column)
        case ValueType.TIMESTAMP:
            return Now()
        case ValueType.TEXT:
            return _text(column)


def generated_key(column: Column, table: str, highest: int | None) -> Value | str:
    """Return a source of new keys for the column; if none is possible, return the reason as text."""
    if column.type in LARGEST:
        return _next_key(column, table, highest)
    value = _text(column) if column.type is ValueType.TEXT else None
    if isinstance(value, RandomUuid) or (isinstance(value, RandomText) and value.length >= _SHORTEST_KEY):
        return value
    return f"no new values can be generated for its key {column.name} of type {column.native_type}"


def _next_key(column: Column, table: str, highest: int | None) -> Value | str:
    first = (highest or 0) + 1
    largest = _SMALL.get(_base(column), LARGEST[column.type])
    span = min(_SPANS[column.type], (largest - first) // VIRTUAL_SLOTS)
    if span < _FEWEST_KEYS:
        return f"its key {column.name} of type {column.native_type} has reached {first - 1}; there is no room for new keys"
    return NewKey(first=first, span=span, table=table, column=column.name, type=column.type)


def _fraction(column: Column) -> RandomNumber:
    """Return a source of random numbers with as many decimal places as a decimal column has; two for another column."""
    precision, scale = _sizes(column) if _base(column) in _DECIMALS else (None, None)
    digits = 2 if precision is None else (scale or 0)
    most = _MOST * 10**digits if precision is None else min(10**precision - 1, _MOST * 10**digits)
    return RandomNumber(high=most, scale=digits, type=ValueType.FLOAT)


def _text(column: Column) -> RandomText | RandomUuid | None:
    if _base(column) == "uuid":
        return RandomUuid()
    if _base(column) not in _TEXTS:
        return None
    return RandomText(length=max(1, min(_sizes(column)[0] or LONGEST_TEXT, LONGEST_TEXT)))


def _base(column: Column) -> str:
    """Return the name of the column's type in lower case, without sizes and without signed or unsigned."""
    bare = re.sub(r"\(.*?\)|\b(un)?signed\b", " ", column.native_type.lower())
    return " ".join(bare.split())


def _sizes(column: Column) -> tuple[int | None, int | None]:
    found = _SIZES.search(column.native_type)
    return (int(found[1]), int(found[2]) if found[2] else None) if found else (None, None)
