"""Pools are sampled all over a table, and are large enough for everyone."""

from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, date, time
from pathlib import Path

import pytest

from bench.people import BEGAN, people
from bench.workloads.standard.given import TARGETS, empty_database, empty_file
from drumbeat.bench.targets.interface import Target
from drumbeat.bench.values.draw import VIRTUAL_SLOTS
from drumbeat.bench.workloads.value_pools import PoolSizes, moment, sample_pools


@pytest.fixture(params=TARGETS)
async def target(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Target]:
    async with empty_database(request.param, request, tmp_path) as target:
        yield target


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
    await target.load_rows("people", ("name", "seen_at"), [(f"p{n}", BEGAN if n % 2 else None) for n in range(200)])

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
        BEGAN,
        BEGAN.replace(tzinfo=UTC),
        "2024-01-01 00:00:00",
        "2024-01-01T00:00:00+00:00",
    ],
)
def test_a_moment_is_the_same_however_the_database_says_it(value: object) -> None:
    assert moment(value) == 19_723 * 86_400 * 1_000_000


@pytest.mark.parametrize(
    "value", ["01/02/2024 10:42", "0000-00-00 00:00:00", "", 1_704_067_200, 45_292.5, b"2024", time(1), None]
)
def test_a_value_that_does_not_say_which_moment_it_is_counts_as_missing(value: object) -> None:
    assert moment(value) is None


async def test_times_that_cannot_be_read_are_left_out_of_the_sample(tmp_path: Path) -> None:
    """SQLite keeps any text or number in a DATETIME column."""
    async with empty_file("sqlite", tmp_path) as target:
        await target.define(["CREATE TABLE people (id INTEGER PRIMARY KEY, seen_at DATETIME)"])
        written = ["01/02/2024 10:42", "yesterday", 1_704_067_200, "2024-01-01 00:00:00"]
        await target.load_rows("people", ("id", "seen_at"), list(enumerate(written, 1)))

        pools = await sample_pools(target, await target.describe("people"), 1)

    assert set(pools.ranges) == set(pools.rows["seen_at"]) == {19_723 * 86_400 * 1_000_000}
    assert len(pools.ranges) >= VIRTUAL_SLOTS
