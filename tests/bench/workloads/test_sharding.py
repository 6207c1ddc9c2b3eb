"""Partitions of keys: every key belongs to one, and each worker stays in its own."""

from typing import Any

import pytest

from drumbeat.bench.model import KeyValue, Load, NewKey
from drumbeat.bench.workloads.config import load_of
from drumbeat.bench.workloads.sharding import Sharding, check_sharding, partition, sharded, sharding_of
from drumbeat.core.errors import InvalidInput

SEED = {"enabled": True, "total_partitions": 100, "key_column": "CUSTOMER_ID", "key_range": [1, 1_000_000]}


def load(high: int = 1_000_000, **key: Any) -> Load:
    value, new = {"key": {"low": 1, "high": high, **key}}, {"new_key": {"first": 9}}
    return load_of(
        {
            "operations": [
                {"kind": "LOOK", "weight": 50, "sql": "SELECT 1 FROM c WHERE customer_id = $1", "values": [value]},
                {"kind": "OTHER", "weight": 40, "sql": "SELECT 1 FROM o WHERE id = $1", "values": [value]},
                {
                    "kind": "ADD",
                    "weight": 10,
                    "sql": "INSERT INTO c (customer_id) VALUES ($1)",
                    "values": [new],
                },
            ]
        }
    )


def keys(found: Load) -> list[Any]:
    return [operation.statements[0].values[0] for operation in found.operations]


def test_each_worker_has_the_keys_of_its_partition_in_statements_that_name_the_column() -> None:
    looked, other, added = keys(sharded(load(), sharding_of(SEED), slot=3))

    assert looked == KeyValue(low=30_001, high=40_000)
    assert other == KeyValue(low=1, high=1_000_000)
    assert added == NewKey(first=9)


@pytest.mark.parametrize(("partitions", "low", "high"), [(1, 1, 7), (3, 1, 10), (64, 5, 1000), (7, -20, 33)])
def test_partitions_cover_every_key_once(partitions: int, low: int, high: int) -> None:
    cut = Sharding(partitions=partitions)

    found = [partition(cut, slot, low, high) for slot in range(partitions)]

    assert [key for begin, end in found for key in range(begin, end + 1)] == list(range(low, high + 1))
    assert partition(cut, partitions + 1, low, high) == found[1 % partitions]


def test_without_a_range_each_key_is_cut_by_its_own_bounds() -> None:
    cut = sharding_of({"enabled": True, "total_partitions": 4})

    assert [(key.low, key.high) for key in keys(sharded(load(high=100), cut, slot=1))[:2]] == [(26, 50), (26, 50)]


def test_nothing_is_sharded_unless_it_is_asked_for() -> None:
    assert sharding_of(None) is sharding_of({"enabled": False, "total_partitions": 3}) is None
    assert sharded(load(), None, slot=5) == load()


@pytest.mark.parametrize(
    ("given", "block", "said"),
    [
        (load(), {"enabled": True}, "sharding.total_partitions: expected the number of partitions"),
        (load(), {**SEED, "key_range": [1, 99]}, "expected at least one key for each of 100 total_partitions, got 1 to 99"),
        (load(), {**SEED, "key_range": [9, 1]}, "sharding.key_range: "),
        (load(), {**SEED, "key_column": "NOBODY"}, "a 'key' value in a statement that names NOBODY, got none"),
        (
            load(high=15_000),
            SEED,
            "partition 2 has the keys 20001 to 30000, and LOOK uses the keys 1 to 15000: expected 1 or more keys that are",
        ),
        (
            load(high=100, distribution="sequential"),
            {**SEED, "key_range": [1, 100]},
            "expected 64 or more keys that are in both ranges",
        ),
    ],
    ids=["no partitions", "too few keys", "turned round", "no such column", "a partition without keys", "sequential"],
)
def test_what_could_not_be_kept_is_refused(given: Load, block: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_sharding(given, sharding_of(block))

    assert said in str(refused.value)


def test_the_example_of_the_template_is_accepted() -> None:
    check_sharding(load(), sharding_of(SEED))
