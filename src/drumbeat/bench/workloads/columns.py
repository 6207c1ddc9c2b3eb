"""Chooses generated values for a column by its type and length, and quotes names and casts arguments for a database."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from drumbeat.bench.model import LARGEST, NewKey, Now, RandomNumber, RandomText, RandomUuid, Value, ValueType
from drumbeat.bench.model.sql_text import NamePart, name_parts
from drumbeat.bench.targets.interface import Column
from drumbeat.bench.targets.placeholders import quoted_part
from drumbeat.bench.values.draw import VIRTUAL_SLOTS

LONGEST_TEXT = 32  #: the length of a generated text, even if the column allows more
_MOST = 1_000_000  #: the largest generated number
_SPANS = {ValueType.INT: 4_000_000, ValueType.BIGINT: 1_000_000_000}  #: how many new keys each of up to 64 workers may use
_FEWEST_KEYS = 10_000  #: with fewer keys per worker, a run would soon run out of keys
_SHORTEST_KEY = 16  #: shorter random texts would collide sooner or later

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*")  #: a name that needs no quotes
_SIGNS = re.compile(r"\b(un)?signed\b|\bzerofill\b")
_FLOAT_DIGITS = 15  #: a float can hold every decimal with so many digits
_MOST_PLACES = 12  #: decimal places of generated numbers; with more, the largest would not fit into 64 bits
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

DIALECTS: Mapping[str, SqlDialect] = {
    "postgresql": SqlDialect(casts=_POSTGRESQL),
    "mysql": SqlDialect(quote="`"),
    "snowflake": SqlDialect(upper=True),
}


def dialect_of(target: str) -> SqlDialect:
    """Return the SQL dialect of a target (a database product) by its name; standard SQL for an unknown one."""
    return DIALECTS.get(target, SqlDialect())


def quoted_name(name: str, dialect: SqlDialect) -> str:
    """Quote the name of a table; a schema and its table are quoted separately."""
    return ".".join(_quoted(part, dialect) for part in name_parts(name))


def quoted_column(name: str, dialect: SqlDialect) -> str:
    """Quote the name of a column, which can contain dots."""
    if dialect.upper and len(name) > 1 and name[0] == name[-1] == dialect.quote:
        return name
    return _quoted(NamePart(name), dialect)


def _quoted(part: NamePart, dialect: SqlDialect) -> str:
    name = part.text.upper() if dialect.upper and not part.is_quoted and _PLAIN.fullmatch(part.text) else part.text
    return quoted_part(name, dialect.quote)


def argument(column: Column, number: int, dialect: SqlDialect) -> str:
    """Return the placeholder for a column's value, cast to the column's type if the database needs that to use an index, or if
    the value is sent as text (see ``is_wide_decimal``)."""
    if is_wide_decimal(column):
        return f"CAST(${number} AS {_SIGNS.sub('', column.native_type).strip()})"
    if dialect.casts is None or _base(column) in dialect.casts[column.type]:
        return f"${number}"
    return f"CAST(${number} AS {column.native_type})"


def is_wide_decimal(column: Column) -> bool:
    """Whether a column's decimals can have more digits than a float: existing values of it are sent as text, with a cast."""
    precision, _ = _sizes(column)
    return column.type is ValueType.FLOAT and _base(column) in _DECIMALS and (precision is None or precision > _FLOAT_DIGITS)


def sent_type(column: Column) -> ValueType:
    """Return the type as which existing values of a column are sent to the database."""
    return ValueType.TEXT if is_wide_decimal(column) else column.type


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
    """Return a source of random numbers with as many decimal places as the column's decimal type, at most twelve; with two for
    other types."""
    precision, scale = _sizes(column) if _base(column) in _DECIMALS else (None, None)
    if precision is None:
        return RandomNumber(high=_MOST * 100, scale=2, type=ValueType.FLOAT)
    digits = min(scale or 0, _MOST_PLACES)
    fitting = 10 ** max(precision - (scale or 0) + digits, 0) - 1  # the largest number that fits into the column
    return RandomNumber(high=min(fitting, _MOST * 10**digits), scale=digits, type=ValueType.FLOAT)


def _text(column: Column) -> RandomText | RandomUuid | None:
    if _base(column) == "uuid":
        return RandomUuid()
    if _base(column) not in _TEXTS:
        return None
    return RandomText(length=max(1, min(_sizes(column)[0] or LONGEST_TEXT, LONGEST_TEXT)))


def _base(column: Column) -> str:
    """Return the name of the column's type in lower case, without sizes and without signed or unsigned."""
    bare = re.sub(r"\(.*?\)", " ", _SIGNS.sub(" ", column.native_type.lower()))
    return " ".join(bare.split())


def _sizes(column: Column) -> tuple[int | None, int | None]:
    found = _SIZES.search(column.native_type)
    return (int(found[1]), int(found[2]) if found[2] else None) if found else (None, None)
