"""``bench prepare``: create and fill a standard workload's tables. The only code that runs DDL on the database under test.

Tables are filled in order, in chunks that are added completely or not at all. After an interruption, ``prepare`` adds only
the missing rows, found by key range. This does not work for tables in which the load itself adds or deletes rows: such a table
counts as filled if a later table has rows. A larger scale adds rows; a smaller one is refused, because rows of the larger one
would stay. To prepare it, set ``fresh``, which drops the tables first.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import isclose
from typing import Any

from drumbeat.bench.targets.interface import Target
from drumbeat.bench.workloads.standard.scaled import Scaled
from drumbeat.bench.workloads.standard.table import StandardTable
from drumbeat.bench.workloads.value_pools import moment
from drumbeat.core.errors import InvalidInput

log = logging.getLogger(__name__)

CHUNK = 50_000  #: rows per bulk insert
_COMPARED = 16  #: rows read to find out whether a table was prepared at a larger scale

Progress = Callable[[str, int, int], None]  #: called with a table's name, its rows so far, and its rows in total


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedTable:
    """What ``prepare`` did with one table: whether it was created, and how many rows existed and were added."""

    name: str
    created: bool
    kept: int  #: rows that existed already
    added: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedReport:
    """What ``prepare`` did with each table, in fill order."""

    tables: tuple[PreparedTable, ...]

    @property
    def added(self) -> int:
        return sum(table.added for table in self.tables)


def _no_progress(table: str, done: int, total: int) -> None:
    """Do nothing: the progress callback of ``prepare`` if the caller gives none."""


async def prepare(
    target: Target, standard: Scaled, *, fresh: bool = False, chunk: int = CHUNK, on_progress: Progress = _no_progress
) -> PreparedReport:
    """Create the workload's tables and add missing rows; with ``fresh``, drop the tables first.

    Raises InvalidInput before any change if a table of the same name has other columns, or was prepared at another scale.
    """
    existing = {table.name for table in standard.tables if await _exists(target, table)}
    complete = frozenset[str]() if fresh else await _tables_to_keep(target, standard, existing)
    if fresh:
        await _drop(target, [table for table in reversed(standard.tables) if table.name in existing])
        existing = set()
    filler = _Filler(target, chunk, on_progress)
    reports = []
    for table in standard.tables:
        created = table.name not in existing
        if created:
            log.info("%s: creating table %s", target.location, table.name)
            await target.define(table.ddl)
        reports.append(await filler.fill(table, created=created, complete=table.name in complete))
    return PreparedReport(tables=tuple(reports))


async def _exists(target: Target, table: StandardTable) -> bool:
    try:
        described = await target.describe(table.name)
    except InvalidInput:
        return False
    found = {column.name.lower() for column in described.columns}
    if found != set(table.columns):
        raise InvalidInput(
            f"expected {table.name} on {target.location} to have the columns {', '.join(table.columns)}, got "
            f"{', '.join(sorted(found))}; rename that table, or use another database"
        )
    return True


async def _drop(target: Target, tables: Sequence[StandardTable]) -> None:
    for table in tables:
        log.info("%s: dropping table %s", target.location, table.name)
    await target.define([f"DROP TABLE IF EXISTS {table.name}" for table in tables])


async def _tables_to_keep(target: Target, standard: Scaled, existing: set[str]) -> frozenset[str]:
    """Return the names of tables that were filled earlier and must be left alone, because the benchmark changes their rows.
    Raises InvalidInput if the workload was prepared at another scale."""
    if not any(table.changes and table.count for table in standard.tables):
        for table in standard.tables:
            if table.name in existing and table.count:
                await _refuse_larger_scale(target, standard, table)
        return frozenset()
    counts = [await _count(target, table) if table.name in existing else 0 for table in standard.tables]
    last = max((index for index, count in enumerate(counts) if count), default=0)
    for index, (table, count) in enumerate(zip(standard.tables, counts, strict=True)):
        if not table.changes and (count > table.count or (count < table.count and index < last)):
            raise InvalidInput(
                f"expected {table.count} rows in {table.name} for {standard.name} at scale {standard.scale:g}, got {count}: "
                f"the tables were prepared at another scale; use that scale, or prepare with --fresh"
            )
    return frozenset(table.name for table in standard.tables[:last] if table.changes)


async def _refuse_larger_scale(target: Target, standard: Scaled, table: StandardTable) -> None:
    """Raise InvalidInput if the table was prepared at a larger scale: if it has one of the rows that would come next.

    Rows with these keys that a load has inserted are no such rows: they have other values."""
    following = {_key_of(table, row): row for row in table.rows(table.count, table.count + _COMPARED)}
    keys = sorted(following)
    found = await target.fetch(*_in_range("SELECT " + ", ".join(table.columns), table, keys[0], keys[-1]))
    if any(_is_prepared(row, following[_key_of(table, row)]) for row in found if _key_of(table, row) in following):
        raise InvalidInput(
            f"expected {table.count:,} rows in {table.name} for {standard.name} at scale {standard.scale:g}, got "
            f"{await _count(target, table):,}: the table was prepared at a larger scale; use that scale, or prepare with "
            "--fresh, which drops the tables first"
        )


def _key_of(table: StandardTable, row: Sequence[Any]) -> tuple[int, ...]:
    return tuple(int(row[index]) for index in table.key_indexes)


def _is_prepared(found: Sequence[Any], made: Sequence[Any]) -> bool:
    """Whether a row was added by ``prepare``: at least half of its values are still those that were made for it."""
    same = sum(_is_same(*each) for each in zip(found, made, strict=True))
    return 2 * same >= len(made)


def _is_same(found: Any, made: Any) -> bool:
    """Whether a value in a database is one that was made, also if the database pads texts, rounds, or stores times as text."""
    if isinstance(made, datetime):
        return moment(found) == moment(made)
    if isinstance(made, float) and found is not None:
        return isclose(float(found), made, rel_tol=1e-6)
    return bool(found.rstrip() == made.rstrip() if isinstance(made, str) and isinstance(found, str) else found == made)


async def _count(target: Target, table: StandardTable) -> int:
    return int((await target.fetch("SELECT COUNT(*) FROM {table}".replace("{table}", table.name)))[0][0])


class _Filler:
    """Adds the missing rows of a table, chunk by chunk."""

    def __init__(self, target: Target, chunk: int, on_progress: Progress) -> None:
        self._target = target
        self._chunk = chunk
        self._on_progress = on_progress

    async def fill(self, table: StandardTable, *, created: bool, complete: bool) -> PreparedTable:
        added = 0
        self._on_progress(table.name, table.count if complete else 0, table.count)
        for begin in () if complete else range(0, table.count, self._chunk):
            end = min(begin + self._chunk, table.count)
            rows = table.rows(begin, end) if created else await self._missing(table, begin, end)
            added += await self._target.load_rows(table.name, table.columns, rows) if rows else 0
            self._on_progress(table.name, end, table.count)
        return PreparedTable(name=table.name, created=created, kept=table.count - added, added=added)

    async def _missing(self, table: StandardTable, begin: int, end: int) -> Iterable[Sequence[Any]]:
        """Return the rows from number ``begin`` to ``end`` that are missing in the table, found by their keys."""
        first, last = _key(table, begin), _key(table, end - 1)
        present = int((await self._target.fetch(*_in_range("SELECT COUNT(*)", table, first, last)))[0][0])
        if present >= end - begin:
            return ()
        rows = table.rows(begin, end)
        if not present:
            return rows
        keys = {
            tuple(row) for row in await self._target.fetch(*_in_range("SELECT " + ", ".join(table.key), table, first, last))
        }
        return [row for row in rows if tuple(row[index] for index in table.key_indexes) not in keys]


def _key(table: StandardTable, number: int) -> tuple[int, ...]:
    return _key_of(table, next(iter(table.rows(number, number + 1))))


def _in_range(select: str, table: StandardTable, first: tuple[int, ...], last: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    """Return a query for the keys from ``first`` to ``last``, and its arguments. It can use an index on the first column."""
    lead, count = table.key[0], len(first)
    bounds = [
        f"{lead} >= $1 AND {lead} <= ${count + 1}",
        _beyond(table.key, ">", 1),
        _beyond(table.key, "<", count + 1),
    ]
    return " ".join([select, "FROM", table.name, "WHERE", " AND ".join(bounds)]), (*first, *last)


def _beyond(columns: Sequence[str], sign: str, number: int) -> str:
    """Return SQL that compares a key of several columns with given values, such as (a > $1 OR (a = $1 AND (b >= $2))).

    ``sign``: ``>`` compares by >=, ``<`` by <=. ``number``: the number of the first placeholder."""
    column, rest = columns[0], columns[1:]
    if not rest:
        return f"({column} {sign}= ${number})"
    return f"({column} {sign} ${number} OR ({column} = ${number} AND {_beyond(rest, sign, number + 1)}))"
