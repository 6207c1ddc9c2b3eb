"""Settling a workload on its database: SQL for its table, values for its placeholders, new keys above those that are there."""

from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from bench.people import people
from bench.workloads.standard.given import TARGETS, drive, empty_database, empty_file
from drumbeat.bench.model import KeyValue, Load, NewKey, PoolValue, RandomNumber, RandomText, SameAs
from drumbeat.bench.model.capacity import HostCapacity
from drumbeat.bench.model.sql_text import name_parts
from drumbeat.bench.targets.catalogue import tables_of
from drumbeat.bench.targets.interface import Target
from drumbeat.bench.targets.placeholders import quoted_part
from drumbeat.bench.templates import parse, plan_of, resolved, run_config
from drumbeat.bench.templates.custom import numbered
from drumbeat.bench.templates.workload_block import fits_workload_block, workload_block
from drumbeat.bench.workloads.columns import dialect_of
from drumbeat.bench.workloads.config import load_of
from drumbeat.bench.workloads.prepare import prepare
from drumbeat.bench.workloads.sql_generation import PRESETS, Subject, generate
from drumbeat.bench.workloads.standard import STANDARD, standard
from drumbeat.core.errors import InvalidInput

HOST = HostCapacity(cpu_cores=4, memory_gb=16)
URL = {"url": "sqlite:///x.db", "table": "people"}
CUSTOM = {
    "custom_point_lookup_query": "SELECT * FROM {table} WHERE id = ?",
    "custom_range_scan_query": "SELECT * FROM {table} WHERE id >= ? AND id < ? + 100",
    "custom_insert_query": "INSERT INTO {table} (id, team_id, name) VALUES (?, ?, ?)",
    "custom_update_query": "UPDATE {table} SET name = ? WHERE id = ?",
}


@pytest.fixture(params=["sqlite", "postgresql"])
async def target(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Target]:
    async with empty_database(request.param, request, tmp_path) as target:
        yield target


@pytest.fixture
async def sqlite(tmp_path: Path) -> AsyncIterator[Target]:
    async with empty_file("sqlite", tmp_path) as target:
        yield target


async def load_on(target: Target, workload: dict[str, Any], **fields: Any) -> Load:
    """The load as a worker would read it from the run's row."""
    document = parse({"target": URL, "workload": workload, **fields})
    settled = await resolved(document, target)
    return load_of(run_config(settled, plan_of(settled, HOST))["workload"])


def values(load: Load, kind: str) -> list[object]:
    return [value for each in load.used if each.kind == kind for statement in each.statements for value in statement.values]


# What is written down


@pytest.mark.parametrize("name", [name for name in STANDARD if name != "tpcc"])
def test_a_load_that_is_written_down_is_read_back_as_it_was(name: str) -> None:
    load = standard(name, 1).load

    again = load_of(workload_block(load).model_dump(mode="json", exclude_none=True))

    assert again.operations == load.used


def test_what_has_no_name_in_a_workload_is_known() -> None:
    assert not fits_workload_block(standard("tpcc", 1).load)


# Presets and queries for a table


@pytest.mark.parametrize("preset", PRESETS)
async def test_a_preset_has_sql_for_the_table_that_runs(target: Target, preset: str) -> None:
    await people(target, 200)

    load = await load_on(target, {"preset": preset})

    assert {each.kind: each.weight for each in load.used} == {kind: each for kind, each in PRESETS[preset].items() if each}
    assert (await drive(target, load, operations=100)).failed == 0


async def test_a_preset_runs_on_a_table_whose_times_cannot_be_read(sqlite: Target) -> None:
    """SQLite keeps any text or number in a DATETIME column."""
    await sqlite.define(["CREATE TABLE people (id INTEGER PRIMARY KEY, seen_at DATETIME)"])
    await sqlite.load_rows("people", ("id", "seen_at"), [(n, "01/02/2024 10:42" if n % 2 else n) for n in range(1, 201)])

    load = await load_on(sqlite, {"preset": "read-heavy"})

    assert (await drive(sqlite, load, operations=100)).failed == 0


async def test_a_preset_on_times_that_cannot_be_read_is_refused_with_what_can_be_done(sqlite: Target) -> None:
    await sqlite.define(["CREATE TABLE people (seen_at DATETIME PRIMARY KEY)"])
    await sqlite.load_rows("people", ("seen_at",), [("01/02/2024 10:42",)])

    with pytest.raises(InvalidInput, match=r"no times that can be read, such as 2024.*set workload\.operations instead"):
        await load_on(sqlite, {"preset": "read-only"})


@pytest.mark.parametrize("keys", [("a1", "b2", "c3"), (1, 2, "c3"), (1.5, 2, 3)])
async def test_a_preset_runs_on_a_table_whose_whole_number_keys_are_others(sqlite: Target, keys: tuple[object, ...]) -> None:
    """SQLite keeps texts and fractions in an INT column."""
    await sqlite.define(["CREATE TABLE people (id INT PRIMARY KEY, name TEXT)"])
    await sqlite.load_rows("people", ("id", "name"), [(key, "someone") for key in keys])

    load = await load_on(sqlite, {"preset": "mixed"})
    driven = await drive(sqlite, load, operations=100)

    assert {each.kind for each in load.used} == {"POINT_LOOKUP", "UPDATE"}
    assert (driven.failed, set(driven.rows("POINT_LOOKUP")), set(driven.rows("UPDATE"))) == (0, {1}, {1})


async def test_the_seeds_own_queries_run_with_values_for_their_table(target: Target) -> None:
    await people(target, 200)

    load = await load_on(target, CUSTOM)

    assert {str(each.kind): each.weight for each in load.used} == {
        "POINT_LOOKUP": 25,
        "RANGE_SCAN": 25,
        "INSERT": 35,
        "UPDATE": 15,
    }
    driven = await drive(target, load, operations=200)
    assert driven.failed == 0
    assert set(driven.rows("POINT_LOOKUP")) == {1}


async def test_values_are_those_of_the_kind(sqlite: Target) -> None:
    await people(sqlite, 200)

    load = await load_on(sqlite, CUSTOM)

    assert values(load, "POINT_LOOKUP") == [KeyValue(low=1, high=200)]
    assert values(load, "RANGE_SCAN") == [KeyValue(low=1, high=200), SameAs(index=0)]
    key, team, name = values(load, "INSERT")
    assert isinstance(key, NewKey)
    assert (key.first, key.table, key.column) == (201, "people", "id")
    assert isinstance(team, RandomNumber)
    assert isinstance(name, RandomText)
    assert name.length == 12
    assert [type(each) for each in values(load, "UPDATE")] == [RandomText, KeyValue]


async def test_a_scan_with_one_value_begins_at_a_moment_that_is_there(sqlite: Target) -> None:
    await people(sqlite, 200)
    scan = {"custom_range_scan_query": "SELECT * FROM {table} WHERE seen_at >= ? LIMIT 5", "custom_range_scan_pct": 100}

    load = await load_on(sqlite, scan)

    assert [type(each) for each in values(load, "RANGE_SCAN")] == [PoolValue]
    assert min((await drive(sqlite, load, operations=50)).rows("RANGE_SCAN")) >= 1


async def test_keys_with_gaps_are_taken_from_a_pool_of_those_that_are_there(sqlite: Target) -> None:
    await people(sqlite, 50, every=7)

    (pool,) = values(await load_on(sqlite, {"preset": "read-only"}), "POINT_LOOKUP")

    assert isinstance(pool, PoolValue)
    assert {key for key in pool.values if isinstance(key, int)} == {n * 7 for n in range(1, 51)}


async def test_percentages_and_presets_say_the_mix_of_queries(sqlite: Target) -> None:
    await people(sqlite, 20)

    said = await load_on(sqlite, {**CUSTOM, "custom_insert_pct": 30, "custom_update_pct": 70})
    preset = await load_on(sqlite, {**CUSTOM, "preset": "read-only"})

    assert {str(each.kind): each.weight for each in said.used} == {"INSERT": 30, "UPDATE": 70}
    assert {str(each.kind): each.weight for each in preset.used} == {"POINT_LOOKUP": 50, "RANGE_SCAN": 50}


@pytest.mark.parametrize(
    ("workload", "said"),
    [
        (
            {"custom_insert_query": "INSERT INTO people VALUES (?)"},
            "workload.custom_point_lookup_query: expected SQL for the 25 %",
        ),
        (
            {"custom_insert_query": "INSERT INTO people (id, age) VALUES (?, ?)", "custom_insert_pct": 100},
            "workload.custom_insert_query: people has no column 'age'",
        ),
        (
            {"custom_insert_query": "INSERT INTO people (id, name) VALUES (?)", "custom_insert_pct": 100},
            "workload.custom_insert_query: expected 2 placeholders, got 1",
        ),
        (
            {"custom_update_query": "UPDATE people SET name = ?, pay = ? WHERE id = ?", "custom_update_pct": 100},
            "workload.custom_update_query: expected 2 placeholders, got 3",
        ),
        ({"preset": "mixed", "table": "nobody"}, "no table 'nobody'"),
        ({"standard": "tpcb"}, "no table 'pgbench_"),
    ],
)
async def test_what_cannot_be_settled_is_refused_with_its_field(sqlite: Target, workload: dict[str, Any], said: str) -> None:
    await people(sqlite, 20)

    with pytest.raises(InvalidInput) as refused:
        await load_on(sqlite, workload)

    assert said in str(refused.value)


@pytest.fixture(params=TARGETS)
async def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Target]:
    async with empty_database(request.param, request, tmp_path) as target:
        yield target


LEDGER = (
    "CREATE TABLE people (id NUMERIC(38,0) NOT NULL PRIMARY KEY, rate NUMERIC(38,30) NOT NULL, team_id NUMERIC(30,0),"
    " name VARCHAR(12))"
)


@pytest.mark.parametrize(
    "workload",
    [{"preset": "mixed"}, {**CUSTOM, "custom_point_lookup_pct": 50, "custom_update_pct": 50}],
    ids=["preset", "custom"],
)
async def test_keys_of_more_digits_than_a_float_are_found(anywhere: Target, workload: dict[str, Any]) -> None:
    rows = [(Decimal(2**53 + 1 + n), Decimal("0.5"), Decimal(2**53 + 1), f"p{n}") for n in range(200)]
    await anywhere.define([LEDGER])
    await anywhere.load_rows("people", ("id", "rate", "team_id", "name"), rows)

    load = await load_on(anywhere, workload)
    driven = await drive(anywhere, load, operations=200, connections=1)

    assert {each.kind for each in load.used} == {"POINT_LOOKUP", "UPDATE"}
    assert (driven.failed, set(driven.rows("POINT_LOOKUP")), set(driven.rows("UPDATE"))) == (0, {1}, {1})
    assert {value.values[0] for value in values(load, "POINT_LOOKUP") if isinstance(value, PoolValue)} <= {
        str(2**53 + 1 + n) for n in range(200)
    }


async def test_wide_decimals_are_inserted(anywhere: Target) -> None:
    await anywhere.define(
        ["CREATE TABLE people (id INTEGER NOT NULL PRIMARY KEY, rate NUMERIC(38,30) NOT NULL, team_id NUMERIC(30,0))"]
    )
    await anywhere.load_rows(
        "people", ("id", "rate", "team_id"), [(n, Decimal("0.5"), Decimal(2**53 + 1)) for n in range(1, 100)]
    )

    driven = await drive(anywhere, await load_on(anywhere, {"preset": "write-only"}), operations=50, connections=1)

    assert driven.failed == 0
    found = await anywhere.fetch("SELECT DISTINCT team_id FROM people")
    assert [int(row[0]) for row in found] == [2**53 + 1]


@pytest.mark.parametrize("name", ['"peo.ple"', '"a ""b"". c"', '"x -- $1;"'])
async def test_a_table_is_chosen_by_a_name_in_quotes(anywhere: Target, name: str) -> None:
    quote = "`" if anywhere.traits.name == "mysql" else '"'
    table, key, other = (quoted_part(name_parts(each)[0].text, quote) for each in (name, '"my.id"', '"the ""na"" me"'))
    await anywhere.define([f"CREATE TABLE {table} ({key} INTEGER NOT NULL PRIMARY KEY, {other} VARCHAR(12))"])
    await anywhere.load_rows(name, ("my.id", 'the "na" me'), [(n, f"p{n}") for n in range(1, 200)])
    custom = {
        "custom_point_lookup_query": f"SELECT * FROM {{table}} -- it's $1; /* ?\n WHERE {key} = ?",
        "custom_insert_query": f"INSERT INTO {{table}} /* INTO x (y) */ ({key}, {other}) VALUES (?, ?) -- a ?",
        "custom_update_query": f"UPDATE {{table}} SET /* SET z = 1 */ {other} = ? WHERE {key} = ?",
        **{f"custom_{kind}_pct": share for kind, share in (("point_lookup", 40), ("insert", 30), ("update", 30))},
    }

    for workload in ({"preset": "mixed"}, custom):
        load = await load_on(anywhere, {**workload, "table": name})
        driven = await drive(anywhere, load, operations=200, connections=1)
        assert driven.failed == 0, driven.samples
        assert (set(driven.rows("POINT_LOOKUP")), set(driven.rows("UPDATE"))) == ({1}, {1})
    assert [(await anywhere.describe(each.reference)).key for each in await tables_of(anywhere)] == ["my.id"]
    await anywhere.define([f"DROP TABLE {table}"])


async def test_a_preset_without_a_table_is_refused(sqlite: Target) -> None:
    with pytest.raises(InvalidInput, match=r"workload\.table: expected the name of the table"):
        await resolved(parse({"workload": {"preset": "mixed"}}), sqlite)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT ? FROM t WHERE a = ?", ("SELECT $1 FROM t WHERE a = $2", 2)),
        ("SELECT '?' , \"?\" FROM t -- ?\nWHERE a = ? /* ? */", ("SELECT '?' , \"?\" FROM t -- ?\nWHERE a = $1 /* ? */", 1)),
        ("SELECT $2, $1, $2", ("SELECT $2, $1, $2", 2)),
        ("SELECT 1", ("SELECT 1", 0)),
        ("SELECT ? -- it's ?\n, ?, '?'", ("SELECT $1 -- it's ?\n, $2, '?'", 2)),
        ("SELECT /* $1 it's */ ?", ("SELECT /* $1 it's */ $1", 1)),
    ],
)
def test_question_marks_are_numbered_outside_quotes_and_comments(sql: str, expected: tuple[str, int]) -> None:
    assert numbered(sql) == expected


# Operations and standard workloads


@pytest.mark.parametrize("number", ["0", "30000000", "9" * 5_000, "٣"])
def test_a_placeholder_of_an_impossible_number_is_refused(number: str) -> None:
    with pytest.raises(InvalidInput, match=r"expected placeholders from \$1 to \$1000, got \$"):
        numbered(f"SELECT 1 WHERE id = ${number}")


async def test_the_tables_name_is_put_into_operations(target: Target) -> None:
    await people(target, 20)
    sql = "SELECT name FROM {table} WHERE id = $1"
    one = {"kind": "LOOK", "weight": 100, "reads": True, "sql": sql, "values": [{"key": {"high": 20, "type": "int"}}]}

    load = await load_on(target, {"operations": [one], "think_time_ms": 1})

    assert load.used[0].statements[0].sql == 'SELECT name FROM "people" WHERE id = $1'
    assert load.think.total_seconds() == 0.001
    assert (await drive(target, load, operations=20)).failed == 0


async def test_new_keys_begin_above_those_that_are_there_now(target: Target) -> None:
    workload = standard("write-only", 0.001)
    await prepare(target, workload)
    table = workload.tables[0]
    await drive(target, workload.load, operations=50)
    highest = (await target.fetch(f"SELECT MAX({table.key[0]}) FROM {table.name}"))[0][0]
    assert highest > table.count

    load = await load_on(target, {"standard": "write-only", "scale": 0.001})

    (first,) = {value.first for value in values(load, "INSERT") if isinstance(value, NewKey)}
    assert first == highest + 1
    assert (await drive(target, load, operations=50)).failed == 0


async def test_a_standard_workload_stays_a_name_where_nothing_depends_on_the_database(sqlite: Target) -> None:
    await prepare(sqlite, standard("tpcb", 0.01))
    document = parse({"workload": {"standard": "tpcb", "scale": 0.01}})

    assert await resolved(document, sqlite) is document


async def test_what_a_preset_resolves_to_is_what_is_generated_for_the_table(sqlite: Target) -> None:
    description = await people(sqlite, 200)
    expected = generate("x", Subject(table=description, dialect=dialect_of("sqlite")), PRESETS["read-only"]).load

    load = await load_on(sqlite, {"preset": "read-only"})

    assert load.operations == expected.used
