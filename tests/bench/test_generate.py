"""Statements for any table: what it can have, in the words of its database, and why it cannot have the rest."""

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from bench.standard.given import TARGETS, drive, opened
from drumbeat.bench.columns import Words, argument, generated, generated_key, named, words_of
from drumbeat.bench.generate import PRESETS, Generated, Subject, generate, shared_out
from drumbeat.bench.model import (
    Distribution,
    Either,
    KeyValue,
    Kind,
    Load,
    NewKey,
    Now,
    Operation,
    Pick,
    PoolValue,
    RandomNumber,
    RandomText,
    RandomUuid,
    SameAs,
    Statement,
    Value,
    ValueType,
)
from drumbeat.bench.new_keys import above_what_is_there
from drumbeat.bench.pools import Pools, PoolSizes, moment, sample_pools
from drumbeat.bench.targets.interface import Column, TableDescription, Target
from drumbeat.bench.targets.postgres import PostgresTarget
from drumbeat.bench.values import VIRTUAL_SLOTS
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
    time = next((each.name for each in columns if each.type is TIMESTAMP), None)
    return TableDescription(name="shop.sales", columns=columns, key=key, key_low=low, key_high=high, time_column=time)


def made(table: TableDescription, pools: Pools | None = None, words: Words | None = None) -> Generated:
    return generate("l", Subject(table=table, pools=pools or Pools(), words=words or Words()), MIXED)


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
    result = operations(made(a_table(ID, NOTE), Pools(keys=(7, 8, 9))))

    values = [result[kind].statements[0].values for kind in (Kind.POINT_LOOKUP, Kind.RANGE_SCAN, Kind.UPDATE)]
    assert [each[0] for each in values[:2]] + [values[2][1]] == [PoolValue(values=(7, 8, 9), type=BIGINT)] * 3


def test_keys_come_from_the_sampled_rows_if_there_is_no_key_pool() -> None:
    result = operations(made(a_table(ID, NOTE), Pools(rows={"id": (3, 4)})))

    assert result[Kind.POINT_LOOKUP].statements[0].values == (PoolValue(values=(3, 4), type=BIGINT),)


def test_without_a_number_for_a_key_a_scan_goes_by_time() -> None:
    table = a_table(column("id", TEXT, "text", nullable=False), AT, bounds=None)

    scan = operations(made(table, Pools(keys=("a",), ranges=(5, 6))))[Kind.RANGE_SCAN].statements[0]

    assert scan.sql == 'SELECT "id", "at" FROM "shop"."sales" WHERE "at" >= $1 ORDER BY "at" LIMIT 100'
    assert scan.values == (PoolValue(values=(5, 6), type=TIMESTAMP),)


def test_a_reference_to_another_table_takes_values_that_are_there() -> None:
    result = operations(made(a_table(ID, OWNER, NOTE), Pools(rows={"owner_id": (1, 2), "note": ("x",)})))

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
        ("nothing but a key", a_table(ID), {Kind.UPDATE: "no column but its key"}),
        (
            "a column that must be there",
            a_table(ID, NOTE, column("doc", TEXT, "jsonb", nullable=False)),
            {Kind.INSERT: "doc must not be null and nothing can be made up for its type, jsonb"},
        ),
        (
            "a small key",
            a_table(column("id", INT, "smallint", nullable=False), NOTE),
            {Kind.INSERT: "has reached 500; there is no room for new ones"},
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
    result = made(a_table(column("id", TEXT, "char(8)", nullable=False), NOTE, bounds=None), Pools(keys=("a",)))

    assert result.left_out[Kind.INSERT] == "its key id is char(8), of which no new ones can be made up"


def test_without_a_number_for_a_key_and_without_a_time_there_is_no_scan() -> None:
    result = made(a_table(column("id", TEXT, "text", nullable=False), NOTE, bounds=None), Pools(keys=("a",)))

    assert result.left_out == {Kind.RANGE_SCAN: "shop.sales has neither a key that is a number nor a time column"}


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
    result = shared_out(dict(zip(MIXED, weights, strict=True)), "t", {})

    assert sum(result.values()) == 100
    assert all(abs(share - weight * 100 / sum(weights)) < 1 for share, weight in zip(result.values(), weights, strict=True))
    assert sorted(result.values()) == sorted(shares)


def test_a_table_that_can_have_nothing_of_what_is_asked_for_is_refused_with_all_reasons() -> None:
    subject = Subject(table=a_table(NOTE, key=None, bounds=None))

    with pytest.raises(InvalidInput, match=r"got shop.sales \(POINT_LOOKUP: .*; RANGE_SCAN: .*; UPDATE: "):
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


# Columns


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
    assert argument(column("c", kind, native), 3, words_of("postgresql")) == written
    assert argument(column("c", kind, native), 3, words_of("sqlite")) == "$3"


@pytest.mark.parametrize(
    ("target", "name", "written"),
    [
        ("postgresql", "Order", '"Order"'),
        ("postgresql", 'shop.od"d', '"shop"."od""d"'),
        ("mysql", "order", "`order`"),
        ("duckdb", "group", '"group"'),
    ],
)
def test_names_are_quoted_the_way_the_database_does(target: str, name: str, written: str) -> None:
    assert named(name, words_of(target)) == written


# On real tables

_PEOPLE = (
    "CREATE TABLE people (id INTEGER NOT NULL PRIMARY KEY, seen_at TIMESTAMP, team_id INTEGER NOT NULL, name VARCHAR(12),"
    " height DOUBLE PRECISION, pay NUMERIC(8,2))"
)
_COLUMNS = ("id", "seen_at", "team_id", "name", "height", "pay")
_BEGAN = datetime(2024, 1, 1, tzinfo=UTC).replace(tzinfo=None)


@pytest.fixture(params=TARGETS)
async def target(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Target]:
    async with opened(request.param, request, tmp_path) as target:
        yield target


async def people(target: Target, count: int, every: int = 1) -> TableDescription:
    rows = [(n * every, _BEGAN + timedelta(hours=n), n % 3 + 40, f"p{n}", 1.5, 9.25) for n in range(1, count + 1)]
    await target.define([_PEOPLE])
    await target.load_rows("people", _COLUMNS, rows)
    return declared(await target.describe("people"), name="character varying(12)", pay="numeric(8,2)")


def declared(description: TableDescription, **sizes: str) -> TableDescription:
    """With the sizes the table was made with, whether or not the target tells them."""
    columns = [replace(each, native_type=sizes.get(each.name, each.native_type)) for each in description.columns]
    return replace(description, columns=tuple(columns))


@pytest.mark.parametrize(
    ("concurrency", "keys", "ranges"),
    [(1, 5_000, 2_000), (100, 5_000, 2_000), (500, 25_000, 5_000), (50_000, 1_000_000, 500_000)],
)
def test_pools_are_as_large_as_the_number_of_connections_asks_for(concurrency: int, keys: int, ranges: int) -> None:
    assert PoolSizes.of(concurrency) == PoolSizes(keys=keys, ranges=ranges, rows=ranges)


async def test_a_large_table_is_sampled_all_over(target: Target) -> None:
    description = await people(target, 30_000, every=3)

    pools = await sample_pools(target, description, 1)

    assert len(set(pools.keys)) == len(pools.keys) == 5_000
    assert len(pools.ranges) == len(pools.rows["name"]) == 2_000
    parts = Counter(int(str(key)) // 9_000 for key in pools.keys)
    assert all(parts[part] > 300 for part in range(10))
    assert all(int(str(key)) % 3 == 0 for key in pools.keys)


async def test_a_small_table_is_sampled_whole(target: Target) -> None:
    pools = await sample_pools(target, await people(target, 100), 1)

    assert sorted(pools.keys, key=str) == sorted(range(1, 101), key=str)
    assert set(pools.rows["team_id"]) == {40, 41, 42}


async def test_a_tiny_table_gives_every_slot_a_place(target: Target) -> None:
    pools = await sample_pools(target, await people(target, 3), 1)

    assert set(pools.keys) == {1, 2, 3}
    assert len(pools.keys) >= VIRTUAL_SLOTS


async def test_an_empty_table_has_empty_pools(target: Target) -> None:
    pools = await sample_pools(target, await people(target, 0), 1)

    assert (pools.keys, pools.ranges, set(pools.rows.values())) == ((), (), {()})


async def test_a_table_without_a_key_is_sampled_from_its_first_rows(target: Target) -> None:
    await target.define(["CREATE TABLE people (name VARCHAR(12), seen_at TIMESTAMP)"])
    await target.load_rows("people", ("name", "seen_at"), [(f"p{n}", _BEGAN if n % 2 else None) for n in range(200)])

    pools = await sample_pools(target, await target.describe("people"), 1)

    assert pools.keys == ()
    assert len(pools.rows["name"]) == 200
    assert len(pools.ranges) == 100


async def test_samples_are_the_same_again_for_a_seed(target: Target) -> None:
    description = await people(target, 20_000)

    assert await sample_pools(target, description, 1, seed=3) == await sample_pools(target, description, 1, seed=3)
    assert await sample_pools(target, description, 1, seed=3) != await sample_pools(target, description, 1, seed=4)


async def test_moments_are_microseconds_since_1970(target: Target) -> None:
    pools = await sample_pools(target, await people(target, 1), 1)

    assert set(pools.ranges) == {(19_723 * 24 + 1) * 3_600 * 1_000_000}


@pytest.mark.parametrize(
    "value",
    [
        date(2024, 1, 1),
        _BEGAN,
        _BEGAN.replace(tzinfo=UTC),
        "2024-01-01 00:00:00",
        "2024-01-01T00:00:00+00:00",
        19_723 * 86_400_000_000,
    ],
)
def test_a_moment_is_the_same_however_the_database_says_it(value: object) -> None:
    assert moment(value) == 19_723 * 86_400 * 1_000_000


@pytest.mark.parametrize("sampled", [True, False])
async def test_what_was_generated_for_a_table_runs_on_it(target: Target, sampled: bool) -> None:
    description = await people(target, 1_000)
    pools = await sample_pools(target, description, 4) if sampled else Pools()
    result = generate("people", Subject(table=description, pools=pools, words=words_of(target.traits.name)), MIXED)

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
        description = declared(replace(await target.describe('"Odd"'), name="Odd"), code="character(3)")
        pools = await sample_pools(target, description, 4)
        result = generate("odd", Subject(table=description, pools=pools, words=words_of("postgresql")), MIXED)
        await target.check(result.load)
        driven = await drive(target, result.load, operations=200)

    assert (result.left_out, driven.failed, list(driven.samples)) == ({}, 0, [])
    assert set(driven.rows(Kind.POINT_LOOKUP)) == {1}
    assert 100 in driven.rows(Kind.RANGE_SCAN)


# New keys


async def test_a_second_run_begins_its_new_keys_above_the_firsts(target: Target) -> None:
    description = await people(target, 10)
    load = generate("people", Subject(table=description, words=words_of(target.traits.name)), {Kind.INSERT: 100}).load

    runs = [await drive(target, await above_what_is_there(target, load), operations=50, slot=slot) for slot in (5, 0, 5)]

    assert [run.failed for run in runs] == [0, 0, 0]


def inserting(key: NewKey) -> Load:
    statement = Statement(sql="INSERT INTO people (id, team_id) VALUES ($1, 1)", values=(key,))
    return Load(name="l", operations=(Operation(kind=Kind.INSERT, weight=100, statements=(statement,)),))


async def test_where_little_room_is_left_for_new_keys_each_worker_has_less_of_it(target: Target) -> None:
    key = NewKey(first=11, span=4_000_000, table="people", column="id", type=INT)
    await people(target, 10)
    await target.load_rows("people", ("id", "team_id"), [(2**31 - 64_001, 1)])

    moved = await above_what_is_there(target, inserting(key))

    assert moved == inserting(replace(key, first=2**31 - 64_000, span=999))


async def test_a_table_without_room_for_new_keys_is_refused(target: Target) -> None:
    await people(target, 10)
    await target.load_rows("people", ("id", "team_id"), [(2**31 - 10, 1)])

    with pytest.raises(InvalidInput, match=r"people\.id has reached 2147483638 and there is no room for new keys"):
        await above_what_is_there(target, inserting(NewKey(first=11, table="people", column="id", type=INT)))


async def test_new_keys_stay_where_they_are_in_an_empty_table(target: Target) -> None:
    description = await people(target, 0)
    load = generate("people", Subject(table=description), {Kind.INSERT: 100}).load

    assert await above_what_is_there(target, load) == load


async def test_all_that_speaks_of_a_new_key_moves_with_it(target: Target) -> None:
    await people(target, 500)
    new = NewKey(first=11, table="people", column="id")
    moved = NewKey(first=501, table="people", column="id")
    other, latest = NewKey(first=11), KeyValue(high=9, distribution=Distribution.LATEST, inserted=new)

    def load(key: NewKey, inserted: KeyValue) -> Load:
        values = (key, inserted, Either(usual=key, other=other, share=0.5), Pick(values=[1], by=key))
        statement = Statement(sql="SELECT $1, $2, $3, $4", values=values)
        return Load(name="l", operations=(Operation(kind="ALL", weight=100, statements=(statement,)),))

    assert await above_what_is_there(target, load(new, latest)) == load(moved, replace(latest, inserted=moved))
