"""Preparing: tables are made and filled once, wherever an earlier attempt stopped, and what is not ours stays as it is."""

import ast
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

import drumbeat
from bench.workloads.standard.consistency import check_consistency
from bench.workloads.standard.given import TARGETS, drive, empty_database, empty_file
from drumbeat.bench.targets.interface import Target
from drumbeat.bench.workloads.prepare import PreparedTable, prepare
from drumbeat.bench.workloads.standard import Scaled, standard
from drumbeat.core.errors import InvalidInput
from thorough import THOROUGH

SMALL = 0.01
CUTS = (1, 4, 5, 7, 8, 9, 10, 11, 12, 15, 20, 21, 22, 24)  #: chunks at which power is lost


@pytest.fixture(params=TARGETS)
async def target(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Target]:
    async with empty_database(request.param, request, tmp_path) as target:
        yield target


@pytest.fixture
async def sqlite(tmp_path: Path) -> AsyncIterator[Target]:
    async with empty_file("sqlite", tmp_path) as target:
        yield target


class PowerCut(Exception):
    """The attempt ends here."""


class Failing:
    """A target that loses its power at the n-th chunk: before it is added, or just after."""

    def __init__(self, target: Target, chunk: int, *, after: bool) -> None:
        self._target = target
        self._left = chunk
        self._after = after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    async def load_rows(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> int:
        self._left -= 1
        added = await self._target.load_rows(table, columns, rows) if self._left or self._after else 0
        if not self._left:
            raise PowerCut
        return added


async def content(target: Target, workload: Scaled) -> dict[str, list[tuple[Any, ...]]]:
    """Everything in the workload's tables, in the order of their keys."""
    found = {}
    for table in workload.tables:
        order = ", ".join(table.key)
        sql = f"SELECT {', '.join(table.columns)} FROM {table.name} ORDER BY {order}"
        found[table.name] = [tuple(row) for row in await target.fetch(sql)]
    return found


async def counted(target: Target, workload: Scaled) -> dict[str, int]:
    return {name: len(rows) for name, rows in (await content(target, workload)).items()}


@pytest.mark.parametrize("name", ["tpcb", "ycsb-a", "mixed", "tpcc"])
async def test_tables_are_made_and_hold_every_row(target: Target, name: str) -> None:
    workload = standard(name, SMALL)

    report = await prepare(target, workload)

    expected = {table.name: table.count for table in workload.tables}
    assert await counted(target, workload) == expected
    assert report.tables == tuple(PreparedTable(name=t, created=True, kept=0, added=n) for t, n in expected.items())


async def test_what_is_in_the_tables_is_what_the_rows_say(target: Target) -> None:
    workload = standard("mixed", SMALL)
    await prepare(target, workload)

    found = (await content(target, workload))["bench_items"]

    (table,) = workload.tables
    rows = list(table.rows(0, table.count))
    assert [(row[0], row[2], row[3], row[4]) for row in found] == [(row[0], row[2], row[3], row[4]) for row in rows]


@pytest.mark.parametrize("name", ["tpcb", "ycsb-a", "tpcc"])
async def test_a_second_time_nothing_is_added(target: Target, name: str) -> None:
    workload = standard(name, SMALL)
    await prepare(target, workload)

    report = await prepare(target, workload)

    assert [(table.created, table.kept, table.added) for table in report.tables] == [
        (False, table.count, 0) for table in workload.tables
    ]


@pytest.mark.parametrize("after", [True, False], ids=["after", "before"])
@pytest.mark.parametrize("cut", CUTS if THOROUGH else CUTS[1::3])
async def test_an_attempt_that_was_cut_off_anywhere_is_taken_up_where_it_ended(
    sqlite: Target, tmp_path: Path, cut: int, after: bool
) -> None:
    workload = standard("tpcc", SMALL)
    with pytest.raises(PowerCut):
        await prepare(cast(Target, Failing(sqlite, cut, after=after)), workload, chunk=300)
    there = sum((await counted_where_there(sqlite, workload)).values())

    report = await prepare(sqlite, workload, chunk=450)

    (tmp_path / "whole").mkdir()
    async with empty_file("sqlite", tmp_path / "whole") as other:
        await prepare(other, workload)
        assert await content(sqlite, workload) == await content(other, workload)
    assert report.added == sum(table.count for table in workload.tables) - there
    assert await check_consistency(sqlite, workload) == ()


async def counted_where_there(target: Target, workload: Scaled) -> dict[str, int]:
    found = {}
    for table in workload.tables:
        try:
            await target.describe(table.name)
        except InvalidInput:
            continue
        ((found[table.name],),) = await target.fetch(f"SELECT COUNT(*) FROM {table.name}")
    return found


@pytest.mark.parametrize("name", ["tpcb", "ycsb-a", "mixed"])
async def test_rows_that_are_missing_anywhere_are_added_and_no_others(target: Target, name: str) -> None:
    workload = standard(name, SMALL)
    await prepare(target, workload)
    whole = await content(target, workload)
    table = workload.tables[-1]
    key = table.key[0]
    await target.define([f"DELETE FROM {table.name} WHERE {key} = 1 OR {key} = 500 OR {key} > 990"])

    report = await prepare(target, workload, chunk=100)

    assert report.tables[-1] == PreparedTable(name=table.name, created=False, kept=988, added=12)
    assert await content(target, workload) == whole


@pytest.mark.parametrize("name", ["tpcb", "ycsb-a", "mixed"])
async def test_a_larger_scale_adds_what_is_more(target: Target, name: str) -> None:
    await prepare(target, standard(name, SMALL))

    report = await prepare(target, standard(name, 2 * SMALL))

    assert report.tables[-1].added == 1_000
    assert (await counted(target, standard(name, SMALL)))[report.tables[-1].name] == 2_000


@pytest.mark.parametrize("name", ["tpcb", "ycsb-a", "mixed"])
async def test_a_smaller_scale_is_refused_with_what_to_do(target: Target, name: str) -> None:
    larger = standard(name, 2 * SMALL)
    await prepare(target, larger)
    await drive(target, larger.load, operations=200, connections=1)
    before = await content(target, larger)

    with pytest.raises(InvalidInput, match=rf"expected 1,000 rows .* for {name} at scale 0.01, got 2,.* larger .* --fresh"):
        await prepare(target, standard(name, SMALL))

    assert await content(target, larger) == before
    assert (await prepare(target, larger)).added == 0
    assert (await prepare(target, standard(name, SMALL), fresh=True)).tables[-1].added == 1_000


@pytest.mark.parametrize("name", ["ycsb-d", "write-only"])
async def test_a_scale_whose_load_has_inserted_rows_is_not_taken_for_a_larger_one(target: Target, name: str) -> None:
    workload = standard(name, SMALL)
    await prepare(target, workload)
    await drive(target, workload.load, operations=1_000, connections=1)
    assert sum((await counted(target, workload)).values()) > 1_016, "rows with the next keys are there"

    assert (await prepare(target, workload)).added == 0


async def test_what_the_load_inserted_does_not_count_as_prepared(target: Target) -> None:
    workload = standard("write-only", SMALL)
    await prepare(target, workload)
    await drive(target, workload.load, operations=100, connections=1)
    await target.define(["DELETE FROM bench_items WHERE item_id <= 10"])

    assert (await prepare(target, workload)).added == 10


@pytest.mark.parametrize("scale", [0.005, 0.02, 2])
async def test_a_workload_whose_rows_its_load_changes_cannot_change_its_scale(sqlite: Target, scale: float) -> None:
    await prepare(sqlite, standard("tpcc", SMALL))
    before = await content(sqlite, standard("tpcc", SMALL))

    with pytest.raises(InvalidInput, match=r"rows in tpcc_\w+ for tpcc at scale .*, got .* prepare with --fresh"):
        await prepare(sqlite, standard("tpcc", scale))

    assert await content(sqlite, standard("tpcc", SMALL)) == before


async def test_what_a_load_made_of_its_tables_is_left_alone(target: Target) -> None:
    workload = standard("tpcc", SMALL)
    await prepare(target, workload)
    await drive(target, workload.load, operations=40, connections=1)
    before = await content(target, workload)

    report = await prepare(target, workload)

    assert report.added == 0
    assert await content(target, workload) == before


@pytest.mark.parametrize("name", ["tpcb", "tpcc"])
async def test_afresh_everything_is_as_in_the_beginning(target: Target, name: str) -> None:
    workload = standard(name, SMALL)
    await prepare(target, workload)
    before = await content(target, workload)
    await drive(target, workload.load, operations=50, connections=1)

    report = await prepare(target, workload, fresh=True)

    assert all(table.created for table in report.tables)
    assert await content(target, workload) == before


@pytest.mark.parametrize("fresh", [True, False])
async def test_a_table_of_that_name_that_is_not_ours_is_not_touched(target: Target, fresh: bool) -> None:
    await target.define(["CREATE TABLE pgbench_tellers (name VARCHAR(20), pay INTEGER)"])
    await target.load_rows("pgbench_tellers", ("name", "pay"), [("Ann", 7)])

    with pytest.raises(InvalidInput, match=r"expected pgbench_tellers on .* to have the columns tid, bid.*, got name, pay"):
        await prepare(target, standard("tpcb", SMALL), fresh=fresh)

    assert [tuple(row) for row in await target.fetch("SELECT name, pay FROM pgbench_tellers")] == [("Ann", 7)]
    with pytest.raises(InvalidInput):
        await target.describe("pgbench_branches")


async def test_progress_is_told_chunk_by_chunk(sqlite: Target) -> None:
    told: list[tuple[str, int, int]] = []

    await prepare(sqlite, standard("ycsb-a", SMALL), chunk=400, on_progress=lambda *each: told.append(each))

    assert told == [("usertable", done, 1_000) for done in (0, 400, 800, 1_000)]


async def test_progress_ends_at_the_whole_whatever_was_there(sqlite: Target) -> None:
    await prepare(sqlite, standard("tpcc", SMALL))
    told: dict[str, tuple[int, int]] = {}

    def tell(table: str, done: int, total: int) -> None:
        told[table] = (done, total)

    await prepare(sqlite, standard("tpcc", SMALL), on_progress=tell)

    assert told == {table.name: (table.count, table.count) for table in standard("tpcc", SMALL).tables}


def test_nothing_else_defines_tables_or_loads_rows() -> None:
    """Only ``bench/workloads/prepare.py`` calls ``define`` or ``load_rows`` of a target, apart from the targets themselves."""
    package = Path(str(drumbeat.__file__)).parent
    callers = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("define", "load_rows")
    }

    assert {path for path in callers if not path.startswith("bench/targets/")} == {"bench/workloads/prepare.py"}
