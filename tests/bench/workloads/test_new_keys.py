"""New keys begin above those that are there, for all workers at the same number."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from bench.people import people
from bench.workloads.standard.given import TARGETS, drive, empty_database
from drumbeat.bench.model import Distribution, Either, KeyValue, Kind, Load, NewKey, Operation, Pick, Statement, ValueType
from drumbeat.bench.targets.interface import Target
from drumbeat.bench.workloads.columns import dialect_of
from drumbeat.bench.workloads.new_keys import with_keys_above_existing
from drumbeat.bench.workloads.sql_generation import Subject, generate
from drumbeat.core.errors import InvalidInput

INT = ValueType.INT


@pytest.fixture(params=TARGETS)
async def target(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Target]:
    async with empty_database(request.param, request, tmp_path) as target:
        yield target


async def test_a_second_run_begins_its_new_keys_above_the_firsts(target: Target) -> None:
    description = await people(target, 10)
    load = generate("people", Subject(table=description, dialect=dialect_of(target.traits.name)), {Kind.INSERT: 100}).load

    runs = [await drive(target, await with_keys_above_existing(target, load), operations=50, slot=slot) for slot in (5, 0, 5)]

    assert [run.failed for run in runs] == [0, 0, 0]


def inserting(key: NewKey) -> Load:
    statement = Statement(sql="INSERT INTO people (id, team_id) VALUES ($1, 1)", values=(key,))
    return Load(name="l", operations=(Operation(kind=Kind.INSERT, weight=100, statements=(statement,)),))


async def test_where_little_room_is_left_for_new_keys_each_worker_has_less_of_it(target: Target) -> None:
    key = NewKey(first=11, span=4_000_000, table="people", column="id", type=INT)
    await people(target, 10)
    await target.load_rows("people", ("id", "team_id"), [(2**31 - 64_001, 1)])

    moved = await with_keys_above_existing(target, inserting(key))

    assert moved == inserting(replace(key, first=2**31 - 64_000, span=999))


async def test_a_table_without_room_for_new_keys_is_refused(target: Target) -> None:
    await people(target, 10)
    await target.load_rows("people", ("id", "team_id"), [(2**31 - 10, 1)])

    with pytest.raises(InvalidInput, match=r"people\.id has reached 2147483638, so there is no room for new keys"):
        await with_keys_above_existing(target, inserting(NewKey(first=11, table="people", column="id", type=INT)))


async def test_new_keys_stay_where_they_are_in_an_empty_table(target: Target) -> None:
    description = await people(target, 0)
    load = generate("people", Subject(table=description), {Kind.INSERT: 100}).load

    assert await with_keys_above_existing(target, load) == load


async def test_all_that_speaks_of_a_new_key_moves_with_it(target: Target) -> None:
    await people(target, 500)
    new = NewKey(first=11, table="people", column="id")
    moved = NewKey(first=501, table="people", column="id")
    other, latest = NewKey(first=11), KeyValue(high=9, distribution=Distribution.LATEST, inserted=new)

    def load(key: NewKey, inserted: KeyValue) -> Load:
        values = (key, inserted, Either(usual=key, other=other, share=0.5), Pick(values=[1], by=key))
        statement = Statement(sql="SELECT $1, $2, $3, $4", values=values)
        return Load(name="l", operations=(Operation(kind="ALL", weight=100, statements=(statement,)),))

    assert await with_keys_above_existing(target, load(new, latest)) == load(moved, replace(latest, inserted=moved))
