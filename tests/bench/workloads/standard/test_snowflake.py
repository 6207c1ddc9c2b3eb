"""Standard workloads on Snowflake: tables are made and filled, every statement compiles, and a load runs without errors."""

from collections.abc import AsyncIterator

import pytest

from bench.workloads.standard.consistency import check_consistency
from bench.workloads.standard.given import drive
from drumbeat.bench.targets.interface import Target
from drumbeat.bench.targets.open import open_target
from drumbeat.bench.workloads.new_keys import with_keys_above_existing
from drumbeat.bench.workloads.prepare import prepare
from drumbeat.bench.workloads.standard import STANDARD, standard

SMALL = 0.002


@pytest.fixture(params=["hybrid", "standard"])
async def target(request: pytest.FixtureRequest, snowflake_url: str) -> AsyncIterator[Target]:
    async with open_target(f"{snowflake_url}&tables={request.param}") as target:
        yield target


async def test_every_statement_of_every_workload_compiles(target: Target) -> None:
    for name in STANDARD:
        workload = standard(name, SMALL)
        for table in workload.tables:
            await target.define([f"DROP TABLE IF EXISTS {table.name}", *table.ddl])
        await target.check(workload.load)


@pytest.mark.parametrize("name", ["tpcb", "mixed"])
async def test_a_prepared_workload_runs_and_stays_consistent(target: Target, name: str) -> None:
    workload = standard(name, SMALL)
    first = await prepare(target, workload)
    again = await prepare(target, workload)

    driven = await drive(target, await with_keys_above_existing(target, workload.load), operations=20, connections=2)

    assert first.added > 0
    assert again.added == 0
    assert driven.failed == 0, driven.samples
    assert await check_consistency(target, workload) == ()
