"""Every driver and framework whose connections ``push_on`` and ``complete_on`` take, behind the same few methods."""

import inspect
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

Call = Callable[..., Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A connection of the caller: begin a transaction, write in it, commit it or roll it back."""

    given: Any  #: what ``push_on`` gets
    begin: Call
    execute: Call
    commit: Call
    rollback: Call

    async def work(self, statement: str) -> None:
        """Begin a transaction and write something of one's own."""
        await done(self.begin())
        await done(self.execute(statement))

    async def end(self, *, commit: bool) -> None:
        await done(self.commit() if commit else self.rollback())


async def done(outcome: Any) -> Any:
    """The outcome of a call that may have to be awaited."""
    return await outcome if inspect.isawaitable(outcome) else outcome


def nothing() -> None:
    """Begin nothing: the driver begins a transaction at the first statement."""


@asynccontextmanager
async def asyncpg(url: str) -> AsyncIterator[Opened]:
    import asyncpg

    connection = await asyncpg.connect(url)
    try:
        yield Opened(
            given=connection,
            begin=lambda: connection.execute("BEGIN"),
            execute=connection.execute,
            commit=lambda: connection.execute("COMMIT"),
            rollback=lambda: connection.execute("ROLLBACK"),
        )
    finally:
        await connection.close()


@asynccontextmanager
async def asyncpg_json_as_objects(url: str) -> AsyncIterator[Opened]:
    """A connection with codecs of its own, which encode and parse JSON."""
    import asyncpg

    connection = await asyncpg.connect(url)
    for name in ("json", "jsonb"):
        await connection.set_type_codec(name, encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
    try:
        yield Opened(
            given=connection,
            begin=lambda: connection.execute("BEGIN"),
            execute=connection.execute,
            commit=lambda: connection.execute("COMMIT"),
            rollback=lambda: connection.execute("ROLLBACK"),
        )
    finally:
        await connection.close()


@asynccontextmanager
async def asyncpg_pool(url: str) -> AsyncIterator[Opened]:
    import asyncpg

    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool, pool.acquire() as connection:
        transaction = connection.transaction()
        yield Opened(
            given=connection,
            begin=transaction.start,
            execute=connection.execute,
            commit=transaction.commit,
            rollback=transaction.rollback,
        )


@asynccontextmanager
async def psycopg(url: str) -> AsyncIterator[Opened]:
    import psycopg

    with psycopg.connect(url) as connection:
        yield _plain(connection, nothing)


@asynccontextmanager
async def psycopg_rows_as_objects(url: str) -> AsyncIterator[Opened]:
    """A connection with a row factory and a class of cursors of its own, which commits by itself outside a transaction."""
    import psycopg
    from psycopg.rows import dict_row

    connection: Any = psycopg.connect(url, autocommit=True, row_factory=dict_row, cursor_factory=psycopg.RawCursor)
    with connection:
        yield Opened(
            given=connection,
            begin=lambda: connection.execute("BEGIN"),
            execute=connection.execute,
            commit=lambda: connection.execute("COMMIT"),
            rollback=lambda: connection.execute("ROLLBACK"),
        )


@asynccontextmanager
async def psycopg_async(url: str) -> AsyncIterator[Opened]:
    import psycopg

    async with await psycopg.AsyncConnection.connect(url) as connection:
        yield _plain(connection, nothing)


@asynccontextmanager
async def sqlite3(url: str) -> AsyncIterator[Opened]:
    import sqlite3

    connection = sqlite3.connect(_file(url))
    connection.row_factory = sqlite3.Row
    try:
        yield _plain(connection, nothing)
    finally:
        connection.close()


@asynccontextmanager
async def sqlite3_begun_by_hand(url: str) -> AsyncIterator[Opened]:
    import sqlite3

    connection = sqlite3.connect(_file(url), isolation_level=None)
    try:
        yield _plain(connection, lambda: connection.execute("BEGIN"))
    finally:
        connection.close()


@asynccontextmanager
async def aiosqlite(url: str) -> AsyncIterator[Opened]:
    import aiosqlite

    async with aiosqlite.connect(_file(url)) as connection:
        yield _plain(connection, nothing)


def core(dialect: str) -> "Way":
    """A connection of SQLAlchemy."""

    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Opened]:
        from sqlalchemy import create_engine, text

        engine = create_engine(_with_dialect(url, dialect))
        with engine.connect() as connection:
            yield Opened(
                given=connection,
                begin=nothing,
                execute=lambda statement: connection.execute(text(statement)),
                commit=connection.commit,
                rollback=connection.rollback,
            )
        engine.dispose()

    return opened


def orm(dialect: str) -> "Way":
    """A session of SQLAlchemy."""

    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Opened]:
        from sqlalchemy import create_engine, text
        from sqlalchemy.orm import Session

        engine = create_engine(_with_dialect(url, dialect))
        with Session(engine) as session:
            yield Opened(
                given=session,
                begin=nothing,
                execute=lambda statement: session.execute(text(statement)),
                commit=session.commit,
                rollback=session.rollback,
            )
        engine.dispose()

    return opened


def async_core(dialect: str) -> "Way":
    """An asynchronous connection of SQLAlchemy."""

    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Opened]:
        from sqlalchemy import text
        from sqlalchemy.ext.asyncio import create_async_engine

        engine = create_async_engine(_with_dialect(url, dialect))
        async with engine.connect() as connection:
            yield Opened(
                given=connection,
                begin=nothing,
                execute=lambda statement: connection.execute(text(statement)),
                commit=connection.commit,
                rollback=connection.rollback,
            )
        await engine.dispose()

    return opened


def async_orm(dialect: str) -> "Way":
    """An asynchronous session of SQLAlchemy."""

    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Opened]:
        from sqlalchemy import text
        from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

        engine = create_async_engine(_with_dialect(url, dialect))
        async with AsyncSession(engine) as session:
            yield Opened(
                given=session,
                begin=nothing,
                execute=lambda statement: session.execute(text(statement)),
                commit=session.commit,
                rollback=session.rollback,
            )
        await engine.dispose()

    return opened


@asynccontextmanager
async def django(url: str) -> AsyncIterator[Opened]:
    """Django's own connection, inside and outside ``transaction.atomic``."""
    connection = django_connection(url)
    try:
        yield Opened(
            given=connection,
            begin=lambda: connection.set_autocommit(False),
            execute=lambda statement: connection.cursor().execute(statement),
            commit=lambda: (connection.commit(), connection.set_autocommit(True)),
            rollback=lambda: (connection.rollback(), connection.set_autocommit(True)),
        )
    finally:
        connection.close()


def django_connection(url: str) -> Any:
    """A connection that Django makes for the database at a URL. In an event loop Django needs DJANGO_ALLOW_ASYNC_UNSAFE."""
    _set_up_django()
    from django.db.utils import ConnectionHandler

    return ConnectionHandler({"default": _django_settings(url)})["default"]


@contextmanager
def use_django(url: str) -> Iterator[None]:
    """For the block, the database at a URL is Django's default database."""
    _set_up_django()
    from django.db import connections
    from django.db.utils import ConnectionHandler

    connections.settings["default"] = ConnectionHandler({"default": _django_settings(url)}).settings["default"]
    try:
        yield
    finally:
        connections["default"].close()
        del connections["default"]
        del connections.settings["default"]


def _set_up_django() -> None:
    from django.apps import apps
    from django.conf import settings

    if not settings.configured:
        settings.configure(USE_TZ=True)
    apps.populate([])


def _django_settings(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": _file(url)}
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path[1:],
        "USER": parts.username,
        "HOST": parts.hostname,
        "PORT": parts.port,
    }


Way = Callable[[str], AbstractAsyncContextManager[Opened]]
POSTGRES: Mapping[str, Way] = {
    "asyncpg": asyncpg,
    "asyncpg-json-as-objects": asyncpg_json_as_objects,
    "asyncpg-pool": asyncpg_pool,
    "psycopg": psycopg,
    "psycopg-rows-as-objects": psycopg_rows_as_objects,
    "psycopg-async": psycopg_async,
    "sqlalchemy-core": core("postgresql+psycopg"),
    "sqlalchemy-orm": orm("postgresql+psycopg"),
    "sqlalchemy-core-asyncpg": async_core("postgresql+asyncpg"),
    "sqlalchemy-core-async-psycopg": async_core("postgresql+psycopg"),
    "sqlalchemy-orm-asyncpg": async_orm("postgresql+asyncpg"),
    "django": django,
}
SQLITE: Mapping[str, Way] = {
    "sqlite3": sqlite3,
    "sqlite3-begun-by-hand": sqlite3_begun_by_hand,
    "aiosqlite": aiosqlite,
    "sqlalchemy-core-sqlite": core("sqlite"),
    "sqlalchemy-orm-sqlite": orm("sqlite"),
    "sqlalchemy-orm-aiosqlite": async_orm("sqlite+aiosqlite"),
    "django-sqlite": django,
}


def _plain(connection: Any, begin: Call) -> Opened:
    return Opened(
        given=connection, begin=begin, execute=connection.execute, commit=connection.commit, rollback=connection.rollback
    )


def _file(url: str) -> str:
    return url.removeprefix("sqlite:///").partition("?")[0]


def _with_dialect(url: str, dialect: str) -> str:
    return f"{dialect}://{url.partition('://')[2].partition('?')[0]}"
