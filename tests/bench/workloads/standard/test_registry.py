"""Standard workloads: each by its name, its rows the same each time, its statements good on every target."""

from collections import Counter
from collections.abc import AsyncIterator
from math import inf, nan
from pathlib import Path

import pytest

from bench.workloads.standard.consistency import check_consistency
from bench.workloads.standard.given import TARGETS, drive, empty_database
from drumbeat.bench.targets.interface import Target
from drumbeat.bench.workloads.new_keys import with_keys_above_existing
from drumbeat.bench.workloads.prepare import prepare
from drumbeat.bench.workloads.standard import STANDARD, Scaled, standard
from drumbeat.core.errors import InvalidInput

SMALL = 0.002


@pytest.fixture(params=TARGETS)
async def target(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Target]:
    async with empty_database(request.param, request, tmp_path) as target:
        yield target


def sql_of(workload: Scaled) -> list[str]:
    return [statement.sql for operation in workload.load.operations for statement in operation.statements]


def test_all_that_was_promised_is_there() -> None:
    pgbench = ["tpcb", "simple-update", "select-only"]
    ycsb = [f"ycsb-{letter}" for letter in "abcdef"]
    presets = ["read-only", "write-only", "read-heavy", "write-heavy", "mixed"]

    assert list(STANDARD) == [*pgbench, *ycsb, *presets, "tpcc"]
    assert all(name == each.name and each.summary for name, each in STANDARD.items())


def test_an_unknown_name_is_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidInput, match=r"got 'tpc-h'; choose one of tpcb, simple-update, .*, tpcc"):
        standard("tpc-h", 1)


@pytest.mark.parametrize("scale", [0, -1, nan, inf])
@pytest.mark.parametrize("name", STANDARD)
def test_a_scale_that_makes_no_sense_is_refused(name: str, scale: float) -> None:
    with pytest.raises(InvalidInput, match="expected a scale above 0"):
        standard(name, scale)


@pytest.mark.parametrize("name", STANDARD)
@pytest.mark.parametrize("scale", [SMALL, 1, 2.5])
def test_a_scale_changes_how_much_there_is_and_not_what(name: str, scale: float) -> None:
    small, scaled = standard(name, SMALL), standard(name, scale)

    assert (scaled.name, scaled.scale, scaled.load.name) == (name, scale, name)
    assert [table.ddl for table in scaled.tables] == [table.ddl for table in small.tables]
    assert sql_of(scaled) == sql_of(small)
    assert all(ours.count >= theirs.count for ours, theirs in zip(scaled.tables, small.tables, strict=True))


@pytest.mark.parametrize("name", STANDARD)
def test_rows_are_in_the_order_of_their_keys_and_no_two_have_the_same(name: str) -> None:
    tables = standard(name, 0.01).tables
    assert any(table.count for table in tables)
    for table in tables:
        rows = list(table.rows(0, table.count))
        keys = [tuple(row[place] for place in table.key_indexes) for row in rows]

        assert len(rows) == table.count
        assert {len(row) for row in rows} <= {len(table.columns)}
        assert keys == sorted(set(keys))


@pytest.mark.parametrize("name", STANDARD)
@pytest.mark.parametrize(("begin", "end"), [(0, 1), (999, 1_001), (1, 999), (500, 2_500)])
def test_a_row_is_the_same_with_whichever_others_it_is_asked_for(name: str, begin: int, end: int) -> None:
    for table in standard(name, 0.05).tables:
        first, last = min(begin, table.count), min(end, table.count)

        assert list(table.rows(first, last)) == list(table.rows(0, table.count))[first:last]


@pytest.mark.parametrize("name", STANDARD)
async def test_every_standard_can_be_prepared_checked_and_run(name: str, target: Target) -> None:
    workload = standard(name, SMALL)
    await prepare(target, workload)
    load = await with_keys_above_existing(target, workload.load)

    await target.check(load)
    operations, connections = (100, 1) if target.traits.name == "duckdb" else (200, 4)
    driven = await drive(target, load, operations=operations, connections=connections)

    kinds = Counter(driven.kinds[kind] for kind in driven.records["kind"])
    assert (driven.failed, list(driven.samples)) == (0, [])
    assert set(kinds) == {operation.kind for operation in load.used}
    assert await check_consistency(target, workload) == ()
