"""Preset workloads on a table of their own: lookups, scans, inserts and updates in five different mixes."""

from collections.abc import Mapping
from datetime import timedelta

from drumbeat.bench.model import Kind, ValueType
from drumbeat.bench.targets.interface import Column, TableDescription
from drumbeat.bench.workloads.columns import SqlDialect
from drumbeat.bench.workloads.sql_generation import PRESETS, Subject, generate
from drumbeat.bench.workloads.standard.rows import (
    LOADED_AT,
    Chance,
    Made,
    Numbers,
    hundredths,
    numbers,
    row_generator,
    scaled_count,
    texts,
)
from drumbeat.bench.workloads.standard.scaled import Scaled, Standard
from drumbeat.bench.workloads.standard.table import StandardTable, table

ROWS = 100_000  #: rows of the table at scale 1
_NAME = "bench_items"
_PLAIN = SqlDialect(quote="")  #: names without quotes, because databases quote differently
_COLUMNS = {
    "item_id": ("BIGINT NOT NULL", ValueType.BIGINT),
    "created_at": ("TIMESTAMP", ValueType.TIMESTAMP),
    "category": ("INTEGER", ValueType.INT),
    "amount": ("DOUBLE PRECISION", ValueType.FLOAT),
    "note": ("VARCHAR(64)", ValueType.TEXT),
}


def items(scale: float) -> StandardTable:
    columns = {name: declared for name, (declared, _) in _COLUMNS.items()}
    return table(
        _NAME, columns, key=("item_id",), rows=row_generator(_NAME, _items), count=scaled_count("a preset", scale, ROWS)
    )


def _items(chance: Chance, rows: Numbers) -> Made:
    moments = [LOADED_AT + timedelta(seconds=row) for row in rows.tolist()]
    return [(rows + 1).tolist(), moments, numbers(chance, 0, 99), hundredths(chance, 0, 100_000_000), texts(chance, 32, 32)]


def described(scale: float) -> TableDescription:
    """Describe the presets' table at a scale, in the same form as ``Target.describe`` describes an existing table."""
    rows = scaled_count("a preset", scale, ROWS)
    columns = tuple(
        Column(name=name, type=kind, native_type=declared.removesuffix(" NOT NULL").lower(), nullable=name != "item_id")
        for name, (declared, kind) in _COLUMNS.items()
    )
    return TableDescription(name=_NAME, columns=columns, key="item_id", key_low=1, key_high=rows, rows=rows)


def _preset(name: str, weights: Mapping[Kind, int]) -> Standard:
    def at(scale: float) -> Scaled:
        load = generate(name, Subject(table=described(scale), dialect=_PLAIN), weights).load
        return Scaled(name=name, scale=scale, tables=(items(scale),), load=load)

    mix = ", ".join(f"{weight} {kind}" for kind, weight in weights.items() if weight)
    return Standard(name=name, summary=f"{mix}; scale 1 is 100,000 rows", at=at)


PRESET_WORKLOADS = tuple(_preset(name, weights) for name, weights in PRESETS.items())
