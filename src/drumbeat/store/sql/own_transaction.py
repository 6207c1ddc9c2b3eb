"""Pushes and completes jobs in a transaction of the caller, so that the caller's writes and the jobs are committed together."""

import asyncio
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from drumbeat.core.errors import InvalidInput, StoreNotReady
from drumbeat.core.job import AttemptOutcome, JobId, JobOutcome, NewJob, Token
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import Holder
from drumbeat.store.flow_rules import has_links
from drumbeat.store.job_ids import number_of
from drumbeat.store.sql.caller_connection import AwaitedDriver, BlockingDriver, awaited_driver, blocking_driver, is_awaited
from drumbeat.store.sql.database import Bulk, MayConflict, Rows, Script, Values, run_script, run_script_blocking
from drumbeat.store.sql.job_scripts import refuse_missing_parents, settle_locked
from drumbeat.store.sql.postgres import read_apart
from drumbeat.store.sql.postgres_dialect import dialect as postgres_dialect
from drumbeat.store.sql.postgres_notify import channel_of
from drumbeat.store.sql.postgres_queue import done_values, push_script as push_to_postgres, share_pool
from drumbeat.store.sql.queries import Query, load_queries
from drumbeat.store.sql.sqlite import DIALECT as SQLITE
from drumbeat.store.sql.sqlite_notify import wake_waiting
from drumbeat.store.sql.sqlite_queue import push_script as push_to_sqlite, settle_done

T = TypeVar("T")

_ASK_STORE = "ask_store"  #: a step that asks the store itself, not the caller's connection, which database it is in
_MISSING_TABLE = re.compile(r'no such table: (pools|jobs)\b|relation ".*(pools|jobs)" does not exist')


class OwnTransactions(ABC):
    """Pushes and completes jobs of one store on connections of callers.

    A method returns its result at once for a connection that blocks, and an awaitable for an asynchronous connection.
    It raises InvalidInput for a connection to another database, or without an open transaction. Errors of the caller's driver
    are not translated.
    """

    name: ClassVar[str]  #: the name of the database product

    def push(self, connection: Any, pool_id: PoolId, jobs: Sequence[NewJob]) -> "Sequence[JobId] | Awaitable[Sequence[JobId]]":
        """Push jobs. Workers can claim them once the caller commits. Raises NotFound if the pool, or a job to wait for, does
        not exist; then nothing is pushed."""
        return self._run(connection, lambda: self._push_linked(pool_id, jobs))

    async def push_awaited(self, connection: Any, pool_id: PoolId, jobs: Sequence[NewJob]) -> Sequence[JobId]:
        """Push jobs, like ``push``, on an asynchronous connection."""
        return await self._run_awaited(connection, lambda: self._push_linked(pool_id, jobs))

    def push_blocking(self, connection: Any, pool_id: PoolId, jobs: Sequence[NewJob]) -> Sequence[JobId]:
        """Push jobs, like ``push``, on a connection that blocks."""
        return self._run_blocking(connection, lambda: self._push_linked(pool_id, jobs))

    def is_awaited(self, connection: Any) -> bool:
        """Whether the connection is asynchronous. Raises InvalidInput for an object that is no known connection."""
        return is_awaited(connection)

    def complete(self, connection: Any, holder: Holder, token: Token, result: Any) -> "bool | Awaitable[bool]":
        """Mark a claimed job as done, and lock it until the caller's transaction ends. Returns False if the job is no longer
        held by this claim."""
        outcome = JobOutcome(token=token, outcome=AttemptOutcome.DONE, result=result)
        return self._run(connection, lambda: self._complete(holder, outcome))

    async def is_being_completed(self, token: Token) -> bool:
        """Whether an open transaction has locked a claimed job, so that an outcome cannot be written without waiting for it."""
        return False

    def _run(self, connection: Any, script: Callable[[], Script[T]]) -> "T | Awaitable[T]":
        return self._run_awaited(connection, script) if is_awaited(connection) else self._run_blocking(connection, script)

    def _run_blocking(self, connection: Any, script: Callable[[], Script[T]]) -> T:
        driver = blocking_driver(connection)

        def perform(name: str, values: Values | Bulk | MayConflict) -> Rows:
            if name == _ASK_STORE:
                with ThreadPoolExecutor(1) as thread:  # the caller's own thread may have a running event loop
                    return thread.submit(self._ask_store).result()
            with _missing_tables():
                return driver.fetch(self._queries()[name], _plain(name, values))

        return run_script_blocking(self._checked(driver, script), perform)

    async def _run_awaited(self, connection: Any, script: Callable[[], Script[T]]) -> T:
        driver = await awaited_driver(connection)

        async def perform(name: str, values: Values | Bulk | MayConflict) -> Rows:
            if name == _ASK_STORE:
                return await asyncio.to_thread(self._ask_store)
            with _missing_tables():
                return await driver.fetch(self._queries()[name], _plain(name, values))

        return await run_script(self._checked(driver, script), perform)

    def _checked(self, driver: BlockingDriver | AwaitedDriver, script: Callable[[], Script[T]]) -> Script[T]:
        """Check the caller's connection, then run the script on it."""
        if driver.name != self.name:
            raise _another_database(f"in {self.name}", f"to {driver.name}")
        if not driver.is_open:
            raise InvalidInput(
                "connection: expected an open transaction, got a connection that commits every statement at once; "
                "begin a transaction, or use push or complete, which have their own"
            )
        yield from self._check_home()
        return (yield from self._within(driver, script()))

    def _push_linked(self, pool_id: PoolId, jobs: Sequence[NewJob]) -> Script[list[JobId]]:
        yield from refuse_missing_parents(pool_id, jobs)
        return (yield from self._push(pool_id, jobs))

    @abstractmethod
    def _queries(self) -> Mapping[str, Query]: ...

    @abstractmethod
    def _ask_store(self) -> Rows:
        """Ask the store which database it is in. Runs in a thread without an event loop."""

    @abstractmethod
    def _check_home(self) -> Script[None]:
        """Raise InvalidInput if the caller's connection is not to the store's own database."""

    @abstractmethod
    def _within(self, driver: BlockingDriver | AwaitedDriver, script: Script[T]) -> Script[T]:
        """Run the script in the caller's transaction."""

    @abstractmethod
    def _push(self, pool_id: PoolId, jobs: Sequence[NewJob]) -> Script[list[JobId]]: ...

    @abstractmethod
    def _complete(self, holder: Holder, outcome: JobOutcome) -> Script[bool]: ...


class PostgresTransactions(OwnTransactions):
    """Pushes and completes jobs of a PostgreSQL store. The commit of the caller's transaction also wakes waiting workers."""

    name = "PostgreSQL"

    def __init__(self, url: str, schema: str) -> None:
        """``url`` is the store's URL as its driver takes it, without options of Drumbeat."""
        self._url = url
        self._schema = schema
        self._home: tuple[str, str] | None = None  #: the store's database and the start of its server, as last read

    def _queries(self) -> Mapping[str, Query]:
        return _postgres_queries(self._schema)

    def _ask_store(self) -> Rows:
        [found] = asyncio.run(read_apart(self._url, load_queries(postgres_dialect(self._schema))["find_home"], {}))
        self._home = (found["database"], found["started"])
        return ()

    def _check_home(self) -> Script[None]:
        [found] = yield "find_home", {}
        given = (found["database"], found["started"])
        if given != self._home:  # not read yet, or the server has restarted since
            yield _ASK_STORE, {}
        if self._home is not None and given != self._home:
            where = "of another server" if given[0] == self._home[0] else f"to {given[0]!r}"
            raise _another_database(repr(self._home[0]), where)

    def _within(self, driver: BlockingDriver | AwaitedDriver, script: Script[T]) -> Script[T]:
        return script

    def _push_linked(self, pool_id: PoolId, jobs: Sequence[NewJob]) -> Script[list[JobId]]:
        if has_links(jobs):
            yield from share_pool(pool_id)  # before rows of jobs, in the order in which a deletion locks them
        return (yield from super()._push_linked(pool_id, jobs))

    def _push(self, pool_id: PoolId, jobs: Sequence[NewJob]) -> Script[list[JobId]]:
        return push_to_postgres(pool_id, jobs, channel_of(self._schema, pool_id))

    def _complete(self, holder: Holder, outcome: JobOutcome) -> Script[bool]:
        numbers = yield from _numbers(outcome.token)
        if (yield "settle_done", done_values(holder, [outcome], numbers)):
            return True
        settled = yield from settle_locked(holder, [outcome], numbers)  # the job is no longer held, or others wait for it
        for pool_id in sorted(settled.pools):
            yield "notify", {"channel": channel_of(self._schema, pool_id)}
        return bool(settled.held)

    async def is_being_completed(self, token: Token) -> bool:
        query = load_queries(postgres_dialect(self._schema))["find_unlocked"]
        return not await read_apart(self._url, query, {"job_id": token.job_id, "seq": number_of(token.job_id)})


class SqliteTransactions(OwnTransactions):
    """Pushes and completes jobs of a SQLite store. Waiting workers are woken before the commit, and then wait for it, since
    they need the file's write lock, which the caller's transaction holds."""

    name = "SQLite"

    def __init__(self, path: Path) -> None:
        self._path = path

    def _queries(self) -> Mapping[str, Query]:
        return load_queries(SQLITE)

    def _ask_store(self) -> Rows:
        return ()

    def _check_home(self) -> Script[None]:
        files = [row["file"] for row in (yield "list_files", {}) if row["name"] == "main"]
        given = files[0] if files and files[0] else None
        if given is None or os.path.realpath(given) != os.path.realpath(self._path):
            raise _another_database(str(self._path), f"to {given or 'a database in memory'}")

    def _within(self, driver: BlockingDriver | AwaitedDriver, script: Script[T]) -> Script[T]:
        yield "lock_file" if driver.has_begun else "begin_writing", {}
        result = yield from script
        wake_waiting(self._path)
        return result

    def _push(self, pool_id: PoolId, jobs: Sequence[NewJob]) -> Script[list[JobId]]:
        return push_to_sqlite(pool_id, jobs)

    def _complete(self, holder: Holder, outcome: JobOutcome) -> Script[bool]:
        numbers = yield from _numbers(outcome.token)
        tokens, _ = yield from settle_done(holder, [outcome] if numbers else [], numbers)
        return bool(tokens)


def _numbers(token: Token) -> Script[dict[JobId, int]]:
    """Return the row number of a token's job, by the job's id; empty if a caller chose the id and no job has it."""
    number = number_of(token.job_id)
    if number is None:
        rows = yield "find_job_by_id", {"job_id": token.job_id}
        number = rows[0]["seq"] if rows else None
    return {} if number is None else {token.job_id: number}


def _another_database(expected: str, got: str) -> InvalidInput:
    return InvalidInput(
        f"connection: expected a connection to the store's own database {expected}, got one {got}; "
        "use push or complete, which have their own transaction"
    )


@contextmanager
def _missing_tables() -> Iterator[None]:
    """Raise StoreNotReady in place of the driver's own error if the database has no tables of Drumbeat."""
    try:
        yield
    except Exception as exc:
        if not _MISSING_TABLE.search(str(exc)):
            raise
        raise StoreNotReady(
            "connection: expected a database with the tables of the store, got one without them; run: drumbeat store init"
        ) from exc


def _plain(name: str, values: Values | Bulk | MayConflict) -> Values:
    if isinstance(values, Bulk | MayConflict):
        raise InvalidInput(f"query {name}: expected a mapping of values, got a {type(values).__name__}")
    return values


@cache
def _postgres_queries(schema: str) -> Mapping[str, Query]:
    return load_queries(replace(postgres_dialect(schema), numbered=False))
