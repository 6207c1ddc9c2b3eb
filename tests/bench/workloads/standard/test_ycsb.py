"""YCSB: the six mixes, and which keys they ask for."""

from collections import Counter

import numpy as np
import pytest

from drumbeat.bench.model import Distribution, KeyValue, Kind, NewKey
from drumbeat.bench.values.draw import Draw, ValueStream
from drumbeat.bench.workloads.standard import standard
from drumbeat.bench.workloads.standard.ycsb import READ_MODIFY_WRITE

READ, SCAN, UPDATE, INSERT = Kind.POINT_LOOKUP, Kind.RANGE_SCAN, Kind.UPDATE, Kind.INSERT


@pytest.mark.parametrize(
    ("letter", "weights", "distribution"),
    [
        ("a", {READ: 50, UPDATE: 50}, Distribution.ZIPFIAN),
        ("b", {READ: 95, UPDATE: 5}, Distribution.ZIPFIAN),
        ("c", {READ: 100}, Distribution.ZIPFIAN),
        ("d", {READ: 95, INSERT: 5}, Distribution.LATEST),
        ("e", {SCAN: 95, INSERT: 5}, Distribution.ZIPFIAN),
        ("f", {READ: 50, READ_MODIFY_WRITE: 50}, Distribution.ZIPFIAN),
    ],
)
def test_each_workload_has_its_mix_and_its_distribution(
    letter: str, weights: dict[str, int], distribution: Distribution
) -> None:
    load = standard(f"ycsb-{letter}", 1).load

    values = [value for each in load.operations for statement in each.statements for value in statement.values]
    assert {operation.kind: operation.weight for operation in load.operations} == weights
    assert {value.distribution for value in values if isinstance(value, KeyValue)} == {distribution}
    assert {value.high for value in values if isinstance(value, KeyValue)} == {100_000}


def test_a_record_is_a_key_and_ten_fields_of_a_hundred_bytes() -> None:
    (table,) = standard("ycsb-a", 1).tables

    key, *fields = next(iter(table.rows(0, 1)))
    assert (key, len(fields), {len(field) for field in fields}, len(set(fields))) == (1, 10, {100}, 10)


def test_new_records_come_behind_those_that_are_loaded() -> None:
    insert = standard("ycsb-d", 0.5).load.operations[1].statements[0]

    assert insert.values[0] == NewKey(first=50_001, table="usertable", column="ycsb_key")
    assert insert.sql.count("$") == len(insert.values) == 11


def test_d_reads_what_it_inserted() -> None:
    read, insert = (operation.statements[0].values[0] for operation in standard("ycsb-d", 0.01).load.operations)
    draw = Draw.seeded(0, 1, lambda: 0)
    reads, inserts = ValueStream(read, draw), ValueStream(insert, draw)

    for _ in range(4):
        inserts.next(40, ())
    seen = Counter(reads.next(10_000, ()).tolist())

    assert seen.most_common(1)[0][0] == 1_000 + 3 * 40
    assert sum(count for key, count in seen.items() if key > 1_000) > 5_000


def test_a_scan_is_of_one_to_a_hundred_records() -> None:
    length = standard("ycsb-e", 1).load.operations[0].statements[0].values[1]

    drawn = ValueStream(length, Draw.seeded(0, 1, lambda: 0)).next(10_000, ())

    assert np.array_equal(np.unique(drawn), np.arange(1, 101))
