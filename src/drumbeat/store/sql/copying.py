"""Copies a whole store from one SQL database to another, in any direction.

The source is read in one transaction, so the copy is the store at one moment (from Snowflake: each table at its own moment).
Rows are written in the order of the primary key, some thousand in one transaction. So the rows in the target are always the
first rows of the source, even after a copy was killed. The next copy compares them with the source by checksum and continues
after them; a table in which they differ is emptied and copied again. Until all tables are verified, the table
``unfinished_copy`` in the target prevents other commands from using the target.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import timedelta
from operator import itemgetter
from typing import Any
from uuid import uuid4

from drumbeat.core.errors import InvalidInput, Refused, StoreCorrupt, StoreNotReady
from drumbeat.core.lease import STORE_ID
from drumbeat.store.interface import CopiedTable, CopyObserver, CopyOptions, CopyReport
from drumbeat.store.sql.checksum import Checksum
from drumbeat.store.sql.database import Bulk, Database, Row, Rows, Script, Snapshot, TransactionTooLong
from drumbeat.store.sql.migrate import LATEST, find_schema, migrate
from drumbeat.store.sql.queries import SqlTable, json_columns
from drumbeat.store.sql.rows import instant, load

CHUNK_ROWS = 2_000  #: most rows in one transaction; fewer after a transaction that took too long
CHUNK_BYTES = 4_000_000  #: a transaction that has more bytes than this gets no further row
_NAMED = 3  #: the most workers or controllers that an error names

Change = Callable[[tuple[Any, ...]], tuple[Any, ...]]


class _SourceChanged(Exception):
    """The target's rows of a table are not the first rows of the source, so the table is copied again."""


@dataclass(frozen=True, slots=True)
class _Table:
    """One table to copy, and how each of its rows is changed before it is written to the target."""

    description: SqlTable
    change: Change | None

    @property
    def name(self) -> str:
        return self.description.name

    @property
    def json_places(self) -> list[int]:
        return [n for n, column in enumerate(self.description.columns) if column in self.description.json_columns]

    def changed(self, rows: Sequence[tuple[Any, ...]]) -> Sequence[tuple[Any, ...]]:
        return rows if self.change is None else [*map(self.change, rows)]


@dataclass(slots=True)
class StoreCopy:
    """One run of a copy from ``source`` to ``target``; both are open, and the source has the latest schema version."""

    source: Database
    target: Database
    observer: CopyObserver
    runner: str = field(default_factory=lambda: uuid4().hex)
    _restarted: list[str] = field(default_factory=list)
    _kept: int = 0
    _done: int = 0
    _chunk_rows: int = CHUNK_ROWS

    async def run(self, options: CopyOptions) -> CopyReport:
        """Copy all tables and verify them, or only verify. A copy raises Refused if the target has rows, or if the source is in
        use and ``options.live`` is False."""
        await self._refuse_unusable_target(options)
        descriptions = await table_descriptions(self.source)
        self.source.add_table_queries(descriptions)
        async with self.source.snapshot() as snapshot:
            now = (await snapshot.read("now"))[0]["now"]
            if not options.live and not options.verify_only:
                await _refuse_live(self.source.location, snapshot, now)
            if not options.verify_only:
                await self._begin(descriptions)
            tables = _tables(descriptions, await self._target_descriptions(), await _pool_ids(snapshot))
            before = await _changes(snapshot.read)
            checksums = await self._copied(snapshot, tables, options)
            number = (await snapshot.read("last_number"))[0]["number"]
        found = await self._verified(tables, checksums)
        report = CopyReport(
            source=self.source.location,
            target=self.target.location,
            taken_at=instant(now),
            kept_rows=self._kept,
            restarted=tuple(self._restarted),
            changed=await _changes(self.source.read) != before,
            tables=found,
        )
        if not options.verify_only and not report.different:
            await self.target.transact(self._finish(number))
        return report

    async def _refuse_unusable_target(self, options: CopyOptions) -> None:
        schema = await self.target.transact(find_schema())
        schema.refuse_newer(self.target.location)
        if schema.is_copying and schema.version < LATEST:
            raise StoreNotReady(
                f"the store at {self.target.location} holds an unfinished copy of schema version {schema.version}, "
                f"this Drumbeat needs {LATEST}; copy to an empty database or a new file"
            )
        if schema.version < LATEST and (schema.version or options.verify_only):
            raise StoreNotReady(
                f"expected the store at {self.target.location} to have tables of version {LATEST}, "
                f"found {f'tables of version {schema.version}' if schema.version else 'no tables of Drumbeat'}; "
                f"run: drumbeat store {'migrate' if schema.version else 'copy, without --verify-only'}"
            )

    async def _begin(self, descriptions: Sequence[SqlTable]) -> None:
        """Create the target's tables, or prepare to continue the unfinished copy in the target."""
        self.target.add_table_queries(descriptions)
        self._kept = await self.target.transact(self._take([each.name for each in descriptions]))
        if self._kept:
            self.observer.say(f"continuing an interrupted copy: {self._kept:,} rows are in the target already")

    def _take(self, tables: Sequence[str]) -> Script[int]:
        """Record that only this run may write to the target. Returns how many rows an interrupted copy has written."""
        schema = yield from find_schema()
        if not schema.is_copying:
            yield from migrate()
            for table in tables:
                if (yield f"copy_any_{table}", {}):
                    raise Refused(
                        f"expected an empty store at {self.target.location}, found rows in its table {table}; "
                        "copy to an empty database or a new file, or compare the stores with --verify-only"
                    )
            yield "begin_copy", {}
            yield "add_copy", {"source": self.source.location, "runner": self.runner}
            return 0
        [found] = yield "find_copy", {}
        if found["source"] != self.source.location:
            raise Refused(
                f"expected an empty store at {self.target.location}, found an unfinished copy of {found['source']}; "
                "finish that copy, or copy to an empty database or a new file"
            )
        yield "take_copy", {"runner": self.runner}
        return int(found["rows_copied"])

    async def _target_descriptions(self) -> Sequence[SqlTable]:
        descriptions = await table_descriptions(self.target)
        self.target.add_table_queries(descriptions)
        return descriptions

    async def _copied(self, snapshot: Snapshot, tables: Sequence[_Table], options: CopyOptions) -> Mapping[str, Checksum]:
        """Copy the tables, or only read them if ``options.verify_only``. Returns the checksum of each table of the source."""
        checksums = {}
        for table in tables:
            checksums[table.name] = await (
                self._checksum(snapshot, table, "read") if options.verify_only else self._copy(snapshot, table)
            )
        return checksums

    async def _copy(self, snapshot: Snapshot, table: _Table) -> Checksum:
        kept = Checksum()
        if self._kept:
            async with self.target.snapshot() as copied:
                kept = await self._checksum(copied, table, "compared")
        try:
            return await self._fill(snapshot, table, kept)
        except _SourceChanged:
            self.observer.say(f"the source has changed since the interrupted copy: copying its table {table.name} again")
            self._restarted.append(table.name)
            await self.target.transact(self._empty(table, kept.rows))
            return await self._fill(snapshot, table, Checksum())

    def _empty(self, table: _Table, rows: int) -> Script[None]:
        yield f"copy_empty_{table.name}", {}
        yield from self._note(-rows)

    async def _fill(self, snapshot: Snapshot, table: _Table, kept: Checksum) -> Checksum:
        """Write the source's rows that the target lacks, and return the checksum of all rows of the table in the source.

        ``kept``: the checksum of the target's rows. Raises _SourceChanged unless they are the first rows of the source.
        """
        checksum, chunk, size, places = Checksum(), list[tuple[Any, ...]](), 0, table.json_places
        self._chunk_rows = CHUNK_ROWS
        async with aclosing(snapshot.stream(f"copy_rows_{table.name}")) as batches:
            async for batch in batches:
                for row in table.changed(batch):
                    length = checksum.add(row, places)
                    if checksum.rows > kept.rows:
                        chunk.append(row)
                        size += length
                    elif checksum.rows == kept.rows and checksum != kept:
                        raise _SourceChanged
                    if len(chunk) >= self._chunk_rows or size >= CHUNK_BYTES:
                        await self._write(table, chunk)
                        chunk, size = [], 0
        if checksum.rows < kept.rows:
            raise _SourceChanged
        if chunk:
            await self._write(table, chunk)
        return checksum

    async def _write(self, table: _Table, rows: Sequence[tuple[Any, ...]]) -> None:
        try:
            await self.target.transact(self._insert(table, rows))
        except TransactionTooLong:
            if len(rows) == 1:
                raise
            half = self._chunk_rows = len(rows) // 2
            self.observer.say(f"writing {len(rows):,} rows of table {table.name} took too long: writing {half:,} at a time")
            await self._write(table, rows[:half])
            await self._write(table, rows[half:])
        except InvalidInput as exc:
            if len(rows) == 1:
                key = dict(zip(table.description.columns, rows[0], strict=True))
                named = ", ".join(f"{column} {key[column]!r}" for column in table.description.key)
                raise InvalidInput(
                    f"cannot copy the row of table {table.name} with {named}: {exc}; change or delete this row in the source"
                ) from exc
            for row in rows:
                await self._write(table, [row])
        else:
            self._advance("copied", len(rows))

    def _insert(self, table: _Table, rows: Sequence[tuple[Any, ...]]) -> Script[None]:
        yield from self._note(len(rows))
        yield f"copy_into_{table.name}", Bulk(table=table.name, columns=table.description.columns, records=rows)

    def _note(self, rows: int) -> Script[None]:
        """Count rows that this run writes. Raises Refused if another run has taken over the copy, or finished it."""
        [schema] = yield "find_version_table", {}
        if not schema["is_copying"] or not (yield "note_copied", {"rows": rows, "runner": self.runner}):
            raise Refused(f"another process has continued this copy to {self.target.location}; wait until it ends")

    async def _verified(self, tables: Sequence[_Table], checksums: Mapping[str, Checksum]) -> list[CopiedTable]:
        """Read the whole target, and return the checksums of each table in the source (``checksums``) and in the target."""
        self._done, found = 0, []
        async with self.target.snapshot() as snapshot:
            for table in tables:
                expected, copied = checksums[table.name], await self._checksum(snapshot, table, "verified")
                found.append(
                    CopiedTable(
                        table=table.name,
                        rows=expected.rows,
                        target_rows=copied.rows,
                        checksum=str(expected),
                        target_checksum=str(copied),
                    )
                )
        return found

    async def _checksum(self, snapshot: Snapshot, table: _Table, verb: str) -> Checksum:
        checksum, places = Checksum(), table.json_places
        async for batch in _batches(snapshot, table):
            for row in table.changed(batch):
                checksum.add(row, places)
            self._advance(verb, len(batch))
        return checksum

    def _advance(self, verb: str, rows: int) -> None:
        self._done += rows
        self.observer.progress(verb, self._done)

    def _finish(self, last_number: int) -> Script[None]:
        yield from self._note(0)
        yield "set_last_number", {"number": last_number}
        yield "end_copy", {}


async def _batches(snapshot: Snapshot, table: _Table) -> AsyncIterator[Sequence[tuple[Any, ...]]]:
    async with aclosing(snapshot.stream(f"copy_rows_{table.name}")) as batches:
        async for batch in batches:
            yield batch


async def table_descriptions(database: Database) -> list[SqlTable]:
    """Return every table of the schema as this database describes it. Raises StoreCorrupt if one is missing."""
    columns: dict[str, list[Row]] = {}
    for row in await database.read("list_columns"):
        columns.setdefault(row["table_name"], []).append(row)
    tables = json_columns()
    if missing := [name for name in tables if name not in columns]:
        raise StoreCorrupt(f"the store at {database.location} lacks the table {missing[0]}; run: drumbeat store check")
    return [_description(name, columns[name], documents) for name, documents in tables.items()]


def _description(name: str, columns: Rows, documents: frozenset[str]) -> SqlTable:
    keys = sorted((row for row in columns if row["key_place"]), key=itemgetter("key_place"))
    return SqlTable(
        name=name,
        columns=tuple(row["column_name"] for row in columns),
        key=tuple(row["column_name"] for row in keys),
        json_columns=documents,
    )


def _tables(source: Sequence[SqlTable], target: Sequence[SqlTable], pool_ids: frozenset[str]) -> list[_Table]:
    """Return the tables to copy. Raises StoreCorrupt if a table has other columns in the target than in the source."""
    joined = []
    for one, other in zip(source, target, strict=True):
        if one.columns != other.columns:
            raise StoreCorrupt(
                f"expected the same columns of table {one.name} in both stores, got {', '.join(one.columns)} "
                f"and {', '.join(other.columns)}; run: drumbeat store check"
            )
        joined.append(_Table(one, _change(one, pool_ids)))
    return joined


def _change(table: SqlTable, pool_ids: frozenset[str]) -> Change | None:
    """Return the function that changes a table's rows before they are written, so that the target has no active leases; None
    for a table whose rows are copied unchanged."""
    match table.name:
        case "leases":
            name, released, expires_at = (table.columns.index(each) for each in ("name", "released", "expires_at"))
            return _release(name, released, expires_at, pool_ids)
        case "jobs":
            return _expire(*(table.columns.index(name) for name in ("status", "claimed_at", "lease_until", "lease_extended")))
    return None


def _release(name: int, released: int, expires_at: int, pool_ids: frozenset[str]) -> Change:
    """Return a function that marks leases of controllers and workers as released, in rows of ``leases``, and ends the lease
    with the store's id, so that the target gets an id of its own. It keeps other leases, which mark that something was done
    once, such as a webhook's delivery. ``name``, ``released``, ``expires_at``: positions of columns."""

    def change(row: tuple[Any, ...]) -> tuple[Any, ...]:
        if row[name] == STORE_ID:
            return _with(row, {released: 1, expires_at: 0})
        if row[name].removeprefix("alone/") not in pool_ids:
            return row
        return _with(row, {released: 1})

    return change


def _expire(status: int, claimed_at: int, lease_until: int, lease_extended: int) -> Change:
    """Return a function that lets the leases of claimed jobs expire in rows of ``jobs``, so that the target takes these jobs
    back as if their worker had been lost. The arguments are positions of columns."""

    def change(row: tuple[Any, ...]) -> tuple[Any, ...]:
        if row[status] != "claimed":
            return row
        return _with(row, {lease_until: row[claimed_at] or 0, lease_extended: 1})

    return change


def _with(row: tuple[Any, ...], values: Mapping[int, Any]) -> tuple[Any, ...]:
    return tuple(values.get(place, value) for place, value in enumerate(row))


async def _pool_ids(snapshot: Snapshot) -> frozenset[str]:
    return frozenset(row["pool_id"] for row in await snapshot.read("list_pools", {"kind": None}))


async def _changes(read: Callable[[str], Any]) -> Sequence[Any]:
    [row] = await read("count_changes")
    return tuple(row)


async def _refuse_live(location: str, snapshot: Snapshot, now: int) -> None:
    """Raise Refused if a worker or a controller uses the source."""
    pools = {row["pool_id"]: load(row["thresholds"]) for row in await snapshot.read("list_pools", {"kind": None})}
    workers = [
        f"{row['pool_id']}/{row['worker_id']}"
        for row in await snapshot.read("list_unended_workers")
        if row["pool_id"] in pools and row["at"] > now - _us(pools[row["pool_id"]]["lost_after"])
    ]
    controllers = [row["name"] for row in await snapshot.read("list_controllers")]
    using = [_named("worker", workers), _named("controller", controllers)]
    if workers or controllers:
        raise Refused(
            f"the store at {location} is in use by {' and '.join(filter(None, using))}; their later writes would be "
            "missing in the copy. Stop them first, or copy the store as it is now with --live"
        )


def _us(seconds: float) -> int:
    return timedelta(seconds=seconds) // timedelta(microseconds=1)


def _named(kind: str, names: Sequence[str]) -> str:
    if not names:
        return ""
    more = ", …" if len(names) > _NAMED else ""
    return f"{len(names)} {kind}{'s' if len(names) > 1 else ''} ({', '.join(names[:_NAMED])}{more})"
