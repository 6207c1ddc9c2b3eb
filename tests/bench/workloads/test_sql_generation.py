"""Statements for any table: what it can have, in the words of its database, and why it cannot have the rest."""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from bench.people import declared, people
from bench.workloads.standard.given import TARGETS, drive, empty_database
from drumbeat.bench.model import (
    KeyValue,
    Kind,
    NewKey,
    Now,
    Operation,
    PoolValue,
    RandomNumber,
    RandomText,
    SameAs,
    Value,
    ValueType,
)
from drumbeat.bench.targets.interface import Column, TableDescription, Target
from drumbeat.bench.targets.postgres import PostgresTarget
from drumbeat.bench.targets.snowflake import SnowflakeTarget
from drumbeat.bench.workloads.columns import SqlDialect, dialect_of
from drumbeat.bench.workloads.sql_generation import PRESETS, Generated, Subject, generate, scaled_weights
from drumbeat.bench.workloads.value_pools import ValuePools, sample_pools
from drumbeat.core.errors import InvalidInput

MIXED = PRESETS["mixed"]
INT, BIGINT, FLOAT, TEXT, TIMESTAMP = ValueType.INT, ValueType.BIGINT, ValueType.FLOAT, ValueType.TEXT, ValueType.TIMESTAMP


def column(name: str, kind: ValueType, native: str = "", nullable: bool = True) -> Column:
    return Column(name=name, type=kind, native_type=native or kind.value, nullable=nullable)


ID = column("id", BIGINT, "bigint", nullable=False)
AT = column("at", TIMESTAMP, "timestamp")
NOTE = column("note", TEXT, "varchar(20)")
PRICE = column("price", FLOAT, "numeric(6,2)")
OWNER = column("owner_id", INT, "integer")


def a_table(*columns: Column, key: str | None = "id", bounds: tuple[int, int] | None = (1, 500)) -> TableDescription:
    low, high = bounds or (None, None)
    return TableDescription(name="shop.sales", columns=columns, key=key, key_low=low, key_high=high)


def made(table: TableDescription, pools: ValuePools | None = None, dialect: SqlDialect | None = None) -> Generated:
    return generate("l", Subject(table=table, pools=pools or ValuePools(), dialect=dialect or SqlDialect()), MIXED)


def operations(generated: Generated) -> dict[str, Operation]:
    return {operation.kind: operation for operation in generated.load.operations}


# The four


@pytest.mark.parametrize(
    ("kind", "sql", "values"),
    [
        (
            Kind.POINT_LOOKUP,
            'SELECT "id", "at", "note", "price" FROM "shop"."sales" WHERE "id" = $1',
            (KeyValue(low=1, high=500),),
        ),
        (
            Kind.RANGE_SCAN,
            'SELECT "id", "at", "note", "price" FROM "shop"."sales" WHERE "id" >= $1 AND "id" < $2',
            (KeyValue(low=1, high=500), SameAs(index=0, plus=100)),
        ),
        (
            Kind.INSERT,
            'INSERT INTO "shop"."sales" ("id", "at", "note", "price") VALUES ($1, $2, $3, $4)',
            (
                NewKey(first=501, table="shop.sales", column="id"),
                Now(),
                RandomText(length=20),
                RandomNumber(high=999_999, scale=2, type=FLOAT),
            ),
        ),
        (
            Kind.UPDATE,
            'UPDATE "shop"."sales" SET "note" = $1 WHERE "id" = $2',
            (RandomText(length=20), KeyValue(low=1, high=500)),
        ),
    ],
)
def test_a_table_with_a_key_has_all_four(kind: Kind, sql: str, values: tuple[Value, ...]) -> None:
    result = made(a_table(ID, AT, NOTE, PRICE))

    (statement,) = operations(result)[kind].statements
    assert (statement.sql, statement.values) == (sql, values)
    assert result.left_out == {}


def test_weights_stay_as_they_are_where_nothing_is_left_out() -> None:
    result = made(a_table(ID, NOTE))

    assert {operation.kind: operation.weight for operation in result.load.operations} == MIXED
    assert {operation.kind for operation in result.load.operations if operation.reads} == {Kind.POINT_LOOKUP, Kind.RANGE_SCAN}


def test_keys_come_from_the_key_pool_if_there_is_one() -> None:
    result = operations(made(a_table(ID, NOTE), ValuePools(keys=(7, 8, 9))))

    values = [result[kind].statements[0].values for kind in (Kind.POINT_LOOKUP, Kind.RANGE_SCAN, Kind.UPDATE)]
    assert [each[0] for each in values[:2]] + [values[2][1]] == [PoolValue(values=(7, 8, 9), type=BIGINT)] * 3


def test_keys_come_from_the_sampled_rows_if_there_is_no_key_pool() -> None:
    result = operations(made(a_table(ID, NOTE), ValuePools(rows={"id": (3, 4)})))

    assert result[Kind.POINT_LOOKUP].statements[0].values == (PoolValue(values=(3, 4), type=BIGINT),)


def test_without_a_number_for_a_key_a_scan_goes_by_time() -> None:
    table = a_table(column("id", TEXT, "text", nullable=False), AT, bounds=None)

    scan = operations(made(table, ValuePools(keys=("a",), ranges=(5, 6))))[Kind.RANGE_SCAN].statements[0]

    assert scan.sql == 'SELECT "id", "at" FROM "shop"."sales" WHERE "at" >= $1 ORDER BY "at" LIMIT 100'
    assert scan.values == (PoolValue(values=(5, 6), type=TIMESTAMP),)


def test_a_reference_to_another_table_takes_values_that_are_there() -> None:
    result = operations(made(a_table(ID, OWNER, NOTE), ValuePools(rows={"owner_id": (1, 2), "note": ("x",)})))

    insert = result[Kind.INSERT].statements[0]
    assert insert.values[1:] == (PoolValue(values=(1, 2), type=INT), RandomText(length=20))


@pytest.mark.parametrize(
    ("columns", "changed"),
    [
        ((ID, PRICE, NOTE), "note"),
        ((ID, AT, PRICE), "price"),
        ((ID, OWNER, AT), "at"),
        ((ID, OWNER), "owner_id"),
        ((ID, column("doc", TEXT, "jsonb"), PRICE), "price"),
    ],
)
def test_an_update_changes_a_column_that_is_neither_the_key_nor_a_reference_if_it_can(
    columns: tuple[Column, ...], changed: str
) -> None:
    assert f'SET "{changed}" = $1' in operations(made(a_table(*columns)))[Kind.UPDATE].statements[0].sql


def test_a_column_nothing_can_be_made_up_for_is_left_to_be_null() -> None:
    insert = operations(made(a_table(ID, column("doc", TEXT, "jsonb"), NOTE)))[Kind.INSERT].statements[0]

    assert insert.sql == 'INSERT INTO "shop"."sales" ("id", "note") VALUES ($1, $2)'


# What is left out


@pytest.mark.parametrize(
    ("what", "table", "left_out"),
    [
        (
            "no key",
            a_table(NOTE, AT, key=None, bounds=None),
            {
                Kind.POINT_LOOKUP: "no primary key of one column",
                Kind.RANGE_SCAN: "no values of at are known",
                Kind.UPDATE: "no primary key of one column",
            },
        ),
        (
            "empty",
            a_table(ID, NOTE, bounds=None),
            {
                Kind.POINT_LOOKUP: "no keys of shop.sales are known",
                Kind.RANGE_SCAN: "no keys of shop.sales are known",
                Kind.UPDATE: "no keys of shop.sales are known",
            },
        ),
        ("nothing but a key", a_table(ID), {Kind.UPDATE: "no column besides its key"}),
        (
            "a column that must be there",
            a_table(ID, NOTE, column("doc", TEXT, "jsonb", nullable=False)),
            {Kind.INSERT: "doc must not be null, and no value can be generated for its type jsonb"},
        ),
        (
            "a small key",
            a_table(column("id", INT, "smallint", nullable=False), NOTE),
            {Kind.INSERT: "has reached 500; there is no room for new keys"},
        ),
    ],
)
def test_a_kind_the_table_cannot_have_is_left_out_with_the_reason(
    what: str, table: TableDescription, left_out: Mapping[Kind, str]
) -> None:
    result = made(table)

    assert set(result.left_out) == set(left_out)
    assert all(left_out[kind] in reason for kind, reason in result.left_out.items())
    assert set(operations(result)) == set(MIXED) - set(left_out)
    assert sum(operation.weight for operation in result.load.operations) == 100


def test_a_text_too_short_to_be_new_each_time_is_no_key_to_insert() -> None:
    result = made(a_table(column("id", TEXT, "char(8)", nullable=False), NOTE, bounds=None), ValuePools(keys=("a",)))

    assert result.left_out[Kind.INSERT] == "no new values can be generated for its key id of type char(8)"


@pytest.mark.parametrize("key", [b"\x00\xff", bytearray(b"\x00\xff")])
def test_a_key_of_bytes_is_not_looked_up(key: bytes | bytearray) -> None:
    """Values are sent as text, which would not find such a row."""
    table = a_table(column("id", TEXT, "binary(16)", nullable=False), NOTE, AT, bounds=None)
    result = made(table, ValuePools(keys=(key,), ranges=(1,)))

    reason = "its key id of type binary(16) holds bytes, which cannot be sent as values"
    assert result.left_out[Kind.POINT_LOOKUP] == result.left_out[Kind.UPDATE] == reason
    assert set(operations(result)) == {Kind.RANGE_SCAN}


def test_without_a_number_for_a_key_and_without_a_time_there_is_no_scan() -> None:
    result = made(a_table(column("id", TEXT, "text", nullable=False), NOTE, bounds=None), ValuePools(keys=("a",)))

    assert result.left_out == {Kind.RANGE_SCAN: "shop.sales has neither a numeric key nor a time column"}


@pytest.mark.parametrize(
    ("weights", "shares"),
    [
        ((25, 25, 35, 15), (25, 25, 35, 15)),
        ((25, 25, 0, 15), (38, 39, 0, 23)),
        ((0, 0, 70, 0), (0, 0, 100, 0)),
        ((1, 1, 1, 0), (34, 33, 33, 0)),
        ((10, 10, 0, 20), (25, 25, 0, 50)),
    ],
)
def test_what_is_left_over_is_shared_out_in_proportion_and_totals_100(
    weights: tuple[int, ...], shares: tuple[int, ...]
) -> None:
    result = scaled_weights(dict(zip(MIXED, weights, strict=True)), "t", {})

    assert sum(result.values()) == 100
    assert all(abs(share - weight * 100 / sum(weights)) < 1 for share, weight in zip(result.values(), weights, strict=True))
    assert sorted(result.values()) == sorted(shares)


def test_a_table_that_can_have_nothing_of_what_is_asked_for_is_refused_with_all_reasons() -> None:
    subject = Subject(table=a_table(NOTE, key=None, bounds=None))

    with pytest.raises(InvalidInput, match=r"for shop.sales: POINT_LOOKUP: .*; RANGE_SCAN: .*; UPDATE: "):
        generate("l", subject, PRESETS["read-only"])


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_are_the_seeds_own(preset: str) -> None:
    seeds = {
        "read-only": "50/50/0/0",
        "write-only": "0/0/70/30",
        "read-heavy": "40/40/15/5",
        "write-heavy": "10/10/60/20",
        "mixed": "25/25/35/15",
    }

    assert "/".join(str(weight) for weight in PRESETS[preset].values()) == seeds[preset]


# On real tables


@pytest.fixture(params=TARGETS)
async def target(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Target]:
    async with empty_database(request.param, request, tmp_path) as target:
        yield target


@pytest.mark.parametrize("sampled", [True, False])
async def test_what_was_generated_for_a_table_runs_on_it(target: Target, sampled: bool) -> None:
    description = await people(target, 1_000)
    pools = await sample_pools(target, description, 4) if sampled else ValuePools()
    result = generate("people", Subject(table=description, pools=pools, dialect=dialect_of(target.traits.name)), MIXED)

    await target.check(result.load)
    driven = await drive(target, result.load, operations=400)

    assert (result.left_out, driven.failed, list(driven.samples)) == ({}, 0, [])
    assert set(driven.rows(Kind.POINT_LOOKUP)) == set(driven.rows(Kind.INSERT)) == set(driven.rows(Kind.UPDATE)) == {1}
    assert max(driven.rows(Kind.RANGE_SCAN)) == 100
    (inserted,) = (await target.fetch("SELECT COUNT(*) FROM people WHERE id > 1000 AND seen_at IS NOT NULL"))[0]
    assert inserted == len(driven.rows(Kind.INSERT))
    if sampled:
        assert {row[0] for row in await target.fetch("SELECT DISTINCT team_id FROM people")} == {40, 41, 42}


async def test_postgresqls_own_types_are_looked_up_inserted_and_changed(postgres_url: str) -> None:
    async with PostgresTarget(postgres_url) as target:
        await target.define(
            [
                'CREATE TABLE "Odd" (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), "order" smallint NOT NULL,'
                " is_new boolean NOT NULL, code char(3), born date, seen timestamptz, doc jsonb, share real)",
                'INSERT INTO "Odd" ("order", is_new, born) SELECT n, true, current_date FROM generate_series(1, 300) AS n',
            ]
        )
        description = declared(await target.describe("Odd"), code="character(3)")
        pools = await sample_pools(target, description, 4)
        result = generate("odd", Subject(table=description, pools=pools, dialect=dialect_of("postgresql")), MIXED)
        await target.check(result.load)
        driven = await drive(target, result.load, operations=200)

    assert (result.left_out, driven.failed, list(driven.samples)) == ({}, 0, [])
    assert set(driven.rows(Kind.POINT_LOOKUP)) == {1}
    assert 100 in driven.rows(Kind.RANGE_SCAN)


async def test_snowflakes_own_types_are_inserted_and_changed(snowflake_url: str) -> None:
    """What cannot be generated stays null: times, bytes and documents."""
    async with SnowflakeTarget(snowflake_url) as target:
        await target.define(
            [
                "CREATE TABLE odd (id NUMBER(18) PRIMARY KEY, is_new BOOLEAN NOT NULL, born DATE, seen TIMESTAMP_TZ, at TIME,"
                " code BINARY, doc VARIANT, price NUMBER(8,2), note VARCHAR(9))",
                "INSERT INTO odd (id, is_new, born) SELECT n, TRUE, CURRENT_DATE FROM (VALUES (1), (2), (3)) AS t (n)",
            ]
        )
        description = await target.describe("odd")
        result = generate("odd", Subject(table=description, dialect=dialect_of("snowflake")), PRESETS["write-only"])
        await target.check(result.load)
        driven = await drive(target, result.load, operations=20)
        kept = await target.fetch("SELECT COUNT(*), COUNT(at), COUNT(code), COUNT(doc), COUNT(note) FROM odd WHERE id > 3")

    assert (result.left_out, driven.failed, list(driven.samples)) == ({}, 0, [])
    [(rows, *filled, notes)] = kept
    assert rows > 0
    assert filled == [0, 0, 0]
    assert notes == rows
