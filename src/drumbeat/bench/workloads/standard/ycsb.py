"""YCSB's six core workloads.

They differ from YCSB in three ways: keys are numbers, an update always writes the first of the ten fields, and a
read-modify-write is one transaction.
"""

from dataclasses import replace

from drumbeat.bench.model import Distribution, KeyValue, Kind, Load, NewKey, Operation, RandomNumber, RandomText, Value
from drumbeat.bench.workloads.standard.rows import Chance, Made, Numbers, row_generator, scaled_count, texts
from drumbeat.bench.workloads.standard.scaled import Scaled, Standard
from drumbeat.bench.workloads.standard.script import operation, transaction
from drumbeat.bench.workloads.standard.table import StandardTable, table

RECORDS = 100_000  #: rows of the table at scale 1
FIELDS, LENGTH = 10, 100
LONGEST_SCAN = 100

READ_MODIFY_WRITE = "READ_MODIFY_WRITE"
_NAMES = [f"field{number}" for number in range(FIELDS)]
_SELECT = "SELECT ycsb_key, field0, field1, field2, field3, field4, field5, field6, field7, field8, field9 FROM usertable"
_READ = _SELECT + " WHERE ycsb_key = :key"
_UPDATE = "UPDATE usertable SET field0 = :text WHERE ycsb_key = :key"
_SCAN = _SELECT + " WHERE ycsb_key >= :key ORDER BY ycsb_key LIMIT :length"
_INSERT = (
    "INSERT INTO usertable (ycsb_key, field0, field1, field2, field3, field4, field5, field6, field7, field8, field9)"
    " VALUES (:new, :field0, :field1, :field2, :field3, :field4, :field5, :field6, :field7, :field8, :field9)"
)


def usertable(scale: float) -> StandardTable:
    columns = {"ycsb_key": "BIGINT NOT NULL"} | dict.fromkeys(_NAMES, f"VARCHAR({LENGTH})")
    count = scaled_count("ycsb", scale, RECORDS)
    return table("usertable", columns, key=("ycsb_key",), rows=row_generator("usertable", _records), count=count)


def _records(chance: Chance, rows: Numbers) -> Made:
    return [(rows + 1).tolist(), *(texts(chance, LENGTH, LENGTH) for _ in _NAMES)]


def _kinds(scale: float, distribution: Distribution) -> dict[str, Operation]:
    """Return all YCSB operations by kind, each with weight 0; a workload then sets the weights that it uses."""
    records = scaled_count("ycsb", scale, RECORDS)
    new = NewKey(first=records + 1, table="usertable", column="ycsb_key")
    inserted = new if distribution is Distribution.LATEST else None
    values: dict[str, Value] = {
        "key": KeyValue(high=records, distribution=distribution, inserted=inserted),
        "text": RandomText(length=LENGTH),
        "length": RandomNumber(low=1, high=LONGEST_SCAN),
        "new": new,
    }
    values |= dict.fromkeys(_NAMES, RandomText(length=LENGTH))
    return {
        Kind.POINT_LOOKUP: operation(Kind.POINT_LOOKUP, 0, values, _READ, reads=True),
        Kind.RANGE_SCAN: operation(Kind.RANGE_SCAN, 0, values, _SCAN, reads=True),
        Kind.UPDATE: operation(Kind.UPDATE, 0, values, _UPDATE),
        Kind.INSERT: operation(Kind.INSERT, 0, values, _INSERT),
        READ_MODIFY_WRITE: transaction(READ_MODIFY_WRITE, 0, values, _READ, _UPDATE),
    }


def _workload(letter: str, summary: str, distribution: Distribution, weights: dict[str, int]) -> Standard:
    name = f"ycsb-{letter}"

    def at(scale: float) -> Scaled:
        kinds = _kinds(scale, distribution)
        load = Load(name=name, operations=tuple(replace(kinds[kind], weight=weight) for kind, weight in weights.items()))
        return Scaled(name=name, scale=scale, tables=(usertable(scale),), load=load)

    return Standard(name=name, summary=f"{summary}; scale 1 is 100,000 records of 1,000 bytes", at=at)


_ZIPFIAN, _LATEST = Distribution.ZIPFIAN, Distribution.LATEST

YCSB = (
    _workload("a", "update heavy: half reads, half updates, zipfian", _ZIPFIAN, {Kind.POINT_LOOKUP: 50, Kind.UPDATE: 50}),
    _workload("b", "read mostly: 95 reads, 5 updates, zipfian", _ZIPFIAN, {Kind.POINT_LOOKUP: 95, Kind.UPDATE: 5}),
    _workload("c", "read only, zipfian", _ZIPFIAN, {Kind.POINT_LOOKUP: 100}),
    _workload("d", "read latest: 95 reads of the newest, 5 inserts", _LATEST, {Kind.POINT_LOOKUP: 95, Kind.INSERT: 5}),
    _workload("e", "short ranges: 95 scans of 1 to 100, 5 inserts, zipfian", _ZIPFIAN, {Kind.RANGE_SCAN: 95, Kind.INSERT: 5}),
    _workload("f", "half reads, half read-modify-writes, zipfian", _ZIPFIAN, {Kind.POINT_LOOKUP: 50, READ_MODIFY_WRITE: 50}),
)
