"""Value pools: lists of existing keys, timestamps and column values of a table, sampled before a run."""

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
from drumbeat.bench.workloads.columns import dialect_of, generated, is_wide_decimal, quoted_column, quoted_name

MOST = 1_000_000
_POSITIONS = 100  #: positions in the key range at which a sample is read
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValuePools:
    """Sampled values of a table: keys, start times of range scans, and values by column. Times are microseconds since 1970."""

    keys: tuple[object, ...] = ()
    ranges: tuple[object, ...] = ()
    rows: Mapping[str, tuple[object, ...]] = field(default_factory=dict)  #: by column, without nulls and unreadable times


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSizes:
    """How many keys, timestamps and whole rows to sample from a table; the numbers grow with the number of connections."""

    keys: int
    ranges: int
    rows: int

    @classmethod
    def of(cls, concurrency: int) -> "PoolSizes":
        ranges = min(MOST, max(2_000, 10 * concurrency))
        return cls(keys=min(MOST, max(5_000, 50 * concurrency)), ranges=ranges, rows=ranges)


async def sample_pools(target: Target, description: TableDescription, concurrency: int, seed: int = 0) -> ValuePools:
    """Sample existing values of a table; the same seed gives the same sample.

    If the key is a number, consecutive rows are read at 100 places of the key range, at a cost that does not depend on the
    table's size; otherwise the first rows are read. Twice as many rows as needed are read, and half of them chosen at random. A
    column with fewer values than there are worker slots has its values repeated until there is one for each slot.
    """
    sizes, columns = PoolSizes.of(concurrency), {column.name: column for column in description.columns}
    sampler = _Sampler(target, description, np.random.default_rng(seed))
    return ValuePools(
        keys=await sampler.values(columns.get(description.key or ""), sizes.keys),
        ranges=await sampler.values(columns.get(description.time_column or ""), sizes.ranges),
        rows=await sampler.rows([column for column in description.columns if generated(column)], sizes.rows),
    )


class _Sampler:
    """Reads random samples of a table's rows."""

    def __init__(self, target: Target, table: TableDescription, chance: np.random.Generator) -> None:
        self._target = target
        self._table = table
        self._chance = chance
        self._dialect = dialect_of(target.traits.name)

    async def values(self, column: Column | None, size: int) -> tuple[object, ...]:
        return (await self.rows([column], size))[column.name] if column else ()

    async def rows(self, columns: Sequence[Column], size: int) -> dict[str, tuple[object, ...]]:
        found = await self._read([column.name for column in columns], 2 * size) if columns else []
        chosen = [found[index] for index in self._chance.permutation(len(found))[:size]]
        return {
            column.name: _enough([plain(row[index], column) for row in chosen], column) for index, column in enumerate(columns)
        }

    async def _read(self, names: Sequence[str], count: int) -> list[Sequence[Any]]:
        """Read about ``count`` distinct rows. If the table has a numeric key, the key is added at the end of each row."""
        low, high = self._table.key_low, self._table.key_high
        if self._table.key is None or low is None or high is None:
            return list(await self._target.fetch(self._sql("SELECT {columns} FROM {table} LIMIT $1", names), (count,)))
        sql = self._sql("SELECT {columns}, {key} FROM {table} WHERE {key} >= $1 ORDER BY {key} LIMIT $2", names)
        found: dict[Any, Sequence[Any]] = {}
        for start, length in self._runs(low, high, count):
            found |= {row[-1]: row for row in await self._target.fetch(sql, (start, length))}
        return list(found.values())

    def _runs(self, low: int, high: int, count: int) -> list[tuple[int, int]]:
        """Return pairs (start key, rows to read): 100 pairs spread over the key range, or one pair if the range is small."""
        if high - low < count:
            return [(low, count)]
        parts = np.linspace(low, high, _POSITIONS, endpoint=False)
        starts = parts + self._chance.random(_POSITIONS) * (high - low) / _POSITIONS
        return [(int(start), -(-count // _POSITIONS)) for start in starts]

    def _sql(self, sql: str, names: Sequence[str]) -> str:
        columns = ", ".join(quoted_column(name, self._dialect) for name in names)
        written = sql.replace("{columns}", columns).replace("{key}", quoted_column(self._table.key or "", self._dialect))
        return written.replace("{table}", quoted_name(self._table.name, self._dialect))


def _enough(values: Sequence[object], column: Column) -> tuple[object, ...]:
    """Return the values without nulls and unreadable times, repeated until there is at least one per worker slot."""
    read = [moment(value) for value in values] if column.type is ValueType.TIMESTAMP else values
    present = tuple(value for value in read if value is not None)
    return present * -(-VIRTUAL_SLOTS // len(present)) if 0 < len(present) < VIRTUAL_SLOTS else present


def plain(value: object, column: Column) -> object:
    """Convert a value of a column to a plain type: UUIDs become text, decimals become floats or, if the column can hold more
    digits than a float, text."""
    if is_wide_decimal(column) and isinstance(value, Decimal | int | float):
        return format(value, "f") if isinstance(value, Decimal) else str(value)
    if isinstance(value, Decimal):
        return float(value)
    return str(value) if isinstance(value, UUID) else value


def moment(value: object) -> int | None:
    """Convert a date, a datetime or an ISO text to microseconds since 1970; a time without a time zone counts as UTC.

    Returns None for any other value. SQLite stores any text or number in a time column, and nothing says what it means: 01/02
    can be in January or February, and a number can count seconds, milliseconds or days."""
    if isinstance(value, str):
        value = _from_iso(value)
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime.combine(value, time())
    if not isinstance(value, datetime):
        return None
    aware = value if value.tzinfo else value.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(microseconds=1)


def _from_iso(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None
