"""A scale that is larger than what was loaded is told of before figures are made of rows that are not there."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bench.workloads.standard.given import TARGETS, empty_database
from drumbeat.bench.targets.interface import Target
from drumbeat.bench.workloads.prepare import prepare
from drumbeat.bench.workloads.scale_check import size_warnings
from drumbeat.bench.workloads.standard import STANDARD, standard
from drumbeat.core.errors import InvalidInput


@pytest.fixture(params=TARGETS)
async def target(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Target]:
    async with empty_database(request.param, request, tmp_path) as target:
        yield target


@pytest.mark.parametrize("name", ["tpcb", "ycsb-a", "read-only"])
async def test_a_larger_scale_than_was_loaded_is_told_of_and_what_was_loaded_is_not(target: Target, name: str) -> None:
    await prepare(target, standard(name, 0.01))

    assert await size_warnings(target, standard(name, 0.01)) == ()
    told = await size_warnings(target, standard(name, 0.1))
    assert told
    assert f"{name} at scale 0.1 needs keys up to" in told[-1]
    assert "bench prepare --scale 0.1" in told[-1]


@pytest.mark.parametrize("name", STANDARD)
async def test_nothing_is_told_of_any_workload_at_its_own_scale(
    tmp_path: Path, request: pytest.FixtureRequest, name: str
) -> None:
    async with empty_database("sqlite", request, tmp_path) as target:
        await prepare(target, standard(name, 0.01))

        assert await size_warnings(target, standard(name, 0.01)) == ()


async def test_tables_without_rows_and_without_a_table(target: Target) -> None:
    workload = standard("ycsb-a", 0.01)
    with pytest.raises(InvalidInput, match="bench prepare"):
        await size_warnings(target, workload)
    await target.define(workload.tables[0].ddl)

    (told,) = await size_warnings(target, workload)

    assert told.startswith("usertable has no rows, but ycsb-a")
