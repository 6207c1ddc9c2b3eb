"""``bench prepare``: create a standard workload's tables and fill them. The only place that issues DDL against a target.

Tables are filled one after the other, each in chunks that are added whole or not at all, so whatever stopped an earlier
attempt, what it left tells where to go on:

- rows are looked for by ranges of the key, and only those that are missing are added;
- a table whose rows the load itself adds and removes is complete as soon as a table behind it has rows, and is then left alone.
  Its number of rows no longer says anything, so a workload with such tables cannot grow: for another scale, prepare it afresh.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from drumbeat.bench.targets.interface import Target
from drumbeat.bench.workloads.standard.scaled import Scaled
from drumbeat.bench.workloads.standard.table import StandardTable
from drumbeat.core.errors import InvalidInput

log = logging.getLogger(__name__)

CHUNK = 50_000  #: rows added at once

Progress = Callable[[str, int, int], None]  #: a table, how many of its rows are there, how many there will be


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedTable:
    """What became of one table."""

    name: str
    created: bool
    kept: int  #: rows that were there
    added: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedReport:
    """What ``prepare`` did, table by table."""

    tables: tuple[PreparedTable, ...]

    @property
    def added(self) -> int:
        return sum(table.added for table in self.tables)


def _silent(table: str, done: int, total: int) -> None:
    """Nobody watches."""


async def prepare(
    target: Target, standard: Scaled, *, fresh: bool = False, chunk: int = CHUNK, on_progress: Progress = _silent
) -> PreparedReport:
    """Make the workload's tables hold at least their rows; ``fresh``: drop them before.

    Raises InvalidInput, having changed nothing, when a table of that name is not ours, or was prepared at another scale.
    """
    there = {table.name for table in standard.tables if await _is_there(target, table)}
    settled = frozenset[str]() if fresh else await _settled(target, standard, there)
    if fresh:
        await _drop(target, [table for table in reversed(standard.tables) if table.name in there])
        there = set()
    filler = _Filler(target, chunk, on_progress)
    reports = []
    for table in standard.tables:
        created = table.name not in there
        if created:
            log.info("%s: creating %s", target.location, table.name)
            await target.define(table.ddl)
        reports.append(await filler.fill(table, created=created, settled=table.name in settled))
    return PreparedReport(tables=tuple(reports))


async def _is_there(target: Target, table: StandardTable) -> bool:
    try:
        described = await target.describe(table.name)
    except InvalidInput:
        return False
    found = {column.name.lower() for column in described.columns}
    if found != set(table.columns):
        raise InvalidInput(
            f"expected {table.name} on {target.location} to have the columns {', '.join(table.columns)}, got "
            f"{', '.join(sorted(found))}; it is not ours: rename it, or prepare in another database"
        )
    return True


async def _drop(target: Target, tables: Sequence[StandardTable]) -> None:
    for table in tables:
        log.info("%s: dropping %s", target.location, table.name)
    await target.define([f"DROP TABLE IF EXISTS {table.name}" for table in tables])


async def _settled(target: Target, standard: Scaled, there: set[str]) -> frozenset[str]:
    """The tables whose rows the load changes and that were complete before it ever ran."""
    if not any(table.changes and table.count for table in standard.tables):
        return frozenset()
    counts = [await _count(target, table) if table.name in there else 0 for table in standard.tables]
    last = max((place for place, count in enumerate(counts) if count), default=0)
    for place, (table, count) in enumerate(zip(standard.tables, counts, strict=True)):
        if not table.changes and (count > table.count or (count < table.count and place < last)):
            raise InvalidInput(
                f"expected {table.count} rows in {table.name}, as {standard.name} has at scale {standard.scale:g}, "
                f"got {count}; it was prepared at another scale: use that one, or prepare afresh"
            )
    return frozenset(table.name for table in standard.tables[:last] if table.changes)


async def _count(target: Target, table: StandardTable) -> int:
    return int((await target.fetch("SELECT COUNT(*) FROM {table}".replace("{table}", table.name)))[0][0])


class _Filler:
    """Adds the rows that are missing."""

    def __init__(self, target: Target, chunk: int, on_progress: Progress) -> None:
        self._target = target
        self._chunk = chunk
        self._on_progress = on_progress

    async def fill(self, table: StandardTable, *, created: bool, settled: bool) -> PreparedTable:
        added = 0
        self._on_progress(table.name, table.count if settled else 0, table.count)
        for begin in () if settled else range(0, table.count, self._chunk):
            end = min(begin + self._chunk, table.count)
            rows = table.rows(begin, end) if created else await self._missing(table, begin, end)
            added += await self._target.load_rows(table.name, table.columns, rows) if rows else 0
            self._on_progress(table.name, end, table.count)
        return PreparedTable(name=table.name, created=created, kept=table.count - added, added=added)

    async def _missing(self, table: StandardTable, begin: int, end: int) -> Iterable[Sequence[Any]]:
        """Those of the rows that are not there, by their keys."""
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
        return [row for row in rows if tuple(row[place] for place in table.key_places) not in keys]


def _key(table: StandardTable, number: int) -> tuple[int, ...]:
    row = next(iter(table.rows(number, number + 1)))
    return tuple(row[place] for place in table.key_places)


def _in_range(select: str, table: StandardTable, first: tuple[int, ...], last: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    """A query over the keys from ``first`` to ``last``. The first column is bounded by itself too, for the index's sake."""
    lead, places = table.key[0], len(first)
    bounds = [
        f"{lead} >= $1 AND {lead} <= ${places + 1}",
        _beyond(table.key, ">", 1),
        _beyond(table.key, "<", places + 1),
    ]
    return " ".join([select, "FROM", table.name, "WHERE", " AND ".join(bounds)]), (*first, *last)


def _beyond(columns: Sequence[str], sign: str, place: int) -> str:
    """Columns compared one after the other: (a > $1 OR (a = $1 AND (b >= $2)))."""
    column, rest = columns[0], columns[1:]
    if not rest:
        return f"({column} {sign}= ${place})"
    return f"({column} {sign} ${place} OR ({column} = ${place} AND {_beyond(rest, sign, place + 1)}))"
