"""Columns: values that fit them, and the words each database wants."""

import pytest

from drumbeat.bench.model import NewKey, Now, RandomNumber, RandomText, RandomUuid, Value, ValueType
from drumbeat.bench.targets.interface import Column
from drumbeat.bench.workloads.columns import (
    argument,
    dialect_of,
    generated,
    generated_key,
    quoted_column,
    quoted_name,
    sent_type,
)

INT, BIGINT, FLOAT, TEXT, TIMESTAMP = ValueType.INT, ValueType.BIGINT, ValueType.FLOAT, ValueType.TEXT, ValueType.TIMESTAMP


def column(name: str, kind: ValueType, native: str) -> Column:
    return Column(name=name, type=kind, native_type=native)


@pytest.mark.parametrize(
    ("kind", "native", "value"),
    [
        (INT, "integer", RandomNumber(high=1_000_000)),
        (INT, "smallint", RandomNumber(high=32_767)),
        (INT, "tinyint(4) unsigned", RandomNumber(high=127)),
        (BIGINT, "bigint", RandomNumber(high=1_000_000, type=BIGINT)),
        (FLOAT, "numeric(4,1)", RandomNumber(high=9_999, scale=1, type=FLOAT)),
        (FLOAT, "decimal(3)", RandomNumber(high=999, type=FLOAT)),
        (FLOAT, "numeric(30,2)", RandomNumber(high=100_000_000, scale=2, type=FLOAT)),
        (FLOAT, "numeric(38,20)", RandomNumber(high=10**18, scale=12, type=FLOAT)),
        (FLOAT, "numeric(20,18)", RandomNumber(high=10**14 - 1, scale=12, type=FLOAT)),
        (FLOAT, "numeric(30,30)", RandomNumber(high=10**12 - 1, scale=12, type=FLOAT)),
        (FLOAT, "numeric(3,20)", RandomNumber(high=0, scale=12, type=FLOAT)),
        (FLOAT, "double precision", RandomNumber(high=100_000_000, scale=2, type=FLOAT)),
        (TEXT, "character varying(5)", RandomText(length=5)),
        (TEXT, "VARCHAR(4000)", RandomText(length=32)),
        (TEXT, "text", RandomText(length=32)),
        (TEXT, "uuid", RandomUuid()),
        (TEXT, "boolean", RandomNumber(high=1)),
        (TIMESTAMP, "timestamp(6) without time zone", Now()),
        (TIMESTAMP, "date", Now()),
        (TEXT, "jsonb", None),
        (TEXT, "integer[]", None),
        (TEXT, "enum('a','b')", None),
    ],
)
def test_values_fit_their_columns_type_and_length(kind: ValueType, native: str, value: Value | None) -> None:
    assert generated(column("c", kind, native)) == value


@pytest.mark.parametrize(
    ("kind", "native", "highest", "key"),
    [
        (BIGINT, "bigint", 41, NewKey(first=42, table="t", column="c")),
        (BIGINT, "bigint", None, NewKey(first=1, table="t", column="c")),
        (INT, "integer", 99, NewKey(first=100, span=4_000_000, table="t", column="c", type=INT)),
        (INT, "integer", 2**31 - 6_400_001, NewKey(first=2**31 - 6_400_000, span=99_999, table="t", column="c", type=INT)),
        (TEXT, "text", None, RandomText(length=32)),
        (TEXT, "varchar(16)", None, RandomText(length=16)),
        (TEXT, "uuid", None, RandomUuid()),
    ],
)
def test_new_keys_fit_their_column(kind: ValueType, native: str, highest: int | None, key: Value) -> None:
    assert generated_key(column("c", kind, native), "t", highest) == key


@pytest.mark.parametrize(
    ("kind", "native", "written"),
    [
        (BIGINT, "int8", "$3"),
        (TEXT, "varchar", "$3"),
        (TEXT, "character varying(20)", "$3"),
        (INT, "int2", "CAST($3 AS int2)"),
        (TEXT, "uuid", "CAST($3 AS uuid)"),
        (TEXT, "bool", "CAST($3 AS bool)"),
        (TEXT, "character(4)", "CAST($3 AS character(4))"),
        (FLOAT, "numeric(10,2)", "CAST($3 AS numeric(10,2))"),
        (TIMESTAMP, "timestamptz", "CAST($3 AS timestamptz)"),
        (TIMESTAMP, "date", "CAST($3 AS date)"),
    ],
)
def test_postgresql_is_told_the_type_of_an_argument_it_would_not_take_as_it_is(
    kind: ValueType, native: str, written: str
) -> None:
    assert argument(column("c", kind, native), 3, dialect_of("postgresql")) == written
    assert argument(column("c", kind, native), 3, dialect_of("sqlite")) == "$3"


@pytest.mark.parametrize("target", ["postgresql", "mysql", "sqlite", "duckdb"])
@pytest.mark.parametrize(
    ("native", "written"),
    [
        ("numeric", "CAST($3 AS numeric)"),
        ("decimal(16)", "CAST($3 AS decimal(16))"),
        ("decimal(38,10) unsigned zerofill", "CAST($3 AS decimal(38,10))"),
    ],
)
def test_decimals_of_more_digits_than_a_float_are_sent_as_text(target: str, native: str, written: str) -> None:
    wide = column("c", FLOAT, native)

    assert argument(wide, 3, dialect_of(target)) == written
    assert sent_type(wide) is TEXT
    assert sent_type(column("c", FLOAT, "numeric(15,2)")) is FLOAT


@pytest.mark.parametrize(
    ("target", "name", "written"),
    [
        ("postgresql", '"a.b"', '"a.b"'),
        ("postgresql", 'shop."a.b""c"', '"shop"."a.b""c"'),
        ("mysql", "`a.b`.`c``d`", "`a.b`.`c``d`"),
        ("mysql", '"a.b"', "`a.b`"),
        ("sqlite", "`a.b`", '"a.b"'),
        ("snowflake", 'shop."Order.1"', '"SHOP"."Order.1"'),
        ("postgresql", "Order", '"Order"'),
        ("postgresql", 'shop.od"d', '"shop"."od""d"'),
        ("mysql", "order", "`order`"),
        ("duckdb", "group", '"group"'),
    ],
)
def test_names_are_quoted_the_way_the_database_does(target: str, name: str, written: str) -> None:
    assert quoted_name(name, dialect_of(target)) == written


@pytest.mark.parametrize(
    ("target", "name", "written"),
    [
        ("postgresql", "a.b", '"a.b"'),
        ("postgresql", '"x"', '"""x"""'),
        ("mysql", "a.b`", "`a.b```"),
        ("snowflake", "order_id", '"ORDER_ID"'),
        ("snowflake", '"Order.1"', '"Order.1"'),
    ],
)
def test_the_name_of_a_column_is_quoted_as_a_whole(target: str, name: str, written: str) -> None:
    assert quoted_column(name, dialect_of(target)) == written
