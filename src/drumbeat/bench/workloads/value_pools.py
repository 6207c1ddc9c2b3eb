"""Value pools: keys, moments and rows that are in a table, sampled before a run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np

from drumbeat.bench.model import ValueType
from drumbeat.bench.targets.interface import Column, TableDescription, Target
from drumbeat.bench.values.draw import VIRTUAL_SLOTS
from drumbeat.bench.workloads.columns import generated, named, words_of

MOST = 1_000_000
_PLACES = 100  #: how many places of the table a sample is taken from
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValuePools:
    """What is known to be in a table. Moments are microseconds since 1970."""

    keys: tuple[object, ...] = ()
    ranges: tuple[object, ...] = ()
    rows: Mapping[str, tuple[object, ...]] = field(default_factory=dict)  #: by column, without nulls


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSizes:
    """How many values are enough for so many connections."""

    keys: int
    ranges: int
    rows: int

    @classmethod
    def of(cls, concurrency: int) -> "PoolSizes":
        ranges = min(MOST, max(2_000, 10 * concurrency))
        return cls(keys=min(MOST, max(5_000, 50 * concurrency)), ranges=ranges, rows=ranges)


async def sample_pools(target: Target, description: TableDescription, concurrency: int, seed: int = 0) -> ValuePools:
    """Sample a table, the same way each time for a seed.

    Where the key is a number, runs of neighbours are taken from places all over its range, which costs the same however large
    the table is; elsewhere the table's first rows are. Twice as many are read as are kept. A pool that is smaller than the
    number of slots is repeated until each slot has a place of its own in it.
    """
    sizes, columns = PoolSizes.of(concurrency), {column.name: column for column in description.columns}
    sampler = _Sampler(target, description, np.random.default_rng(seed))
    return ValuePools(
        keys=await sampler.values(columns.get(description.key or ""), sizes.keys),
        ranges=await sampler.values(columns.get(description.time_column or ""), sizes.ranges),
        rows=await sampler.rows([column for column in description.columns if generated(column)], sizes.rows),
    )


class _Sampler:
    """Reads some of a table's rows."""

    def __init__(self, target: Target, table: TableDescription, chance: np.random.Generator) -> None:
        self._target = target
        self._table = table
        self._chance = chance
        self._words = words_of(target.traits.name)

    async def values(self, column: Column | None, size: int) -> tuple[object, ...]:
        return (await self.rows([column], size))[column.name] if column else ()

    async def rows(self, columns: Sequence[Column], size: int) -> dict[str, tuple[object, ...]]:
        found = await self._read([column.name for column in columns], 2 * size) if columns else []
        kept = [found[place] for place in self._chance.permutation(len(found))[:size]]
        return {column.name: _enough([plain(row[place]) for row in kept], column) for place, column in enumerate(columns)}

    async def _read(self, names: Sequence[str], count: int) -> list[Sequence[Any]]:
        """About ``count`` rows, none twice, each with the key behind its other columns where there is one."""
        low, high = self._table.key_low, self._table.key_high
        if self._table.key is None or low is None or high is None:
            return list(await self._target.fetch(self._sql("SELECT {columns} FROM {table} LIMIT $1", names), (count,)))
        sql = self._sql("SELECT {columns}, {key} FROM {table} WHERE {key} >= $1 ORDER BY {key} LIMIT $2", names)
        found: dict[Any, Sequence[Any]] = {}
        for start, length in self._runs(low, high, count):
            found |= {row[-1]: row for row in await self._target.fetch(sql, (start, length))}
        return list(found.values())

    def _runs(self, low: int, high: int, count: int) -> list[tuple[int, int]]:
        """Where to begin, and how many rows to take: at one place in every hundredth part of the keys."""
        if high - low < count:
            return [(low, count)]
        parts = np.linspace(low, high, _PLACES, endpoint=False)
        starts = parts + self._chance.random(_PLACES) * (high - low) / _PLACES
        return [(int(start), -(-count // _PLACES)) for start in starts]

    def _sql(self, sql: str, names: Sequence[str]) -> str:
        columns = ", ".join(named(name, self._words) for name in names)
        written = sql.replace("{columns}", columns).replace("{key}", named(self._table.key or "", self._words))
        return written.replace("{table}", named(self._table.name, self._words))


def _enough(values: Sequence[object], column: Column) -> tuple[object, ...]:
    """Without nulls, and repeated until there is one for each slot."""
    known = tuple(moment(value) if column.type is ValueType.TIMESTAMP else value for value in values if value is not None)
    return known * -(-VIRTUAL_SLOTS // len(known)) if 0 < len(known) < VIRTUAL_SLOTS else known


def plain(value: object) -> object:
    """A value as operations carry it."""
    if isinstance(value, Decimal):
        return float(value)
    return str(value) if isinstance(value, UUID) else value


def moment(value: object) -> object:
    """A date, a moment, or the text of one, as microseconds since 1970; what has no time zone means UTC."""
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime.combine(value, time())
    if not isinstance(value, datetime):
        return value
    aware = value if value.tzinfo else value.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(microseconds=1)
