"""Handlers that write to the user's table and complete their job in the same transaction."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg

from drumbeat import JobContext
from transactions.place import WRITE


@contextmanager
def transaction(url: str) -> Iterator[Any]:
    """A connection with a transaction that commits at the end of the block, and rolls back if the block raises."""
    if not url.startswith("sqlite:"):
        with psycopg.connect(url) as in_postgres:
            yield in_postgres
        return
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection, connection:
        yield connection


def record(payload: dict[str, Any], context: JobContext) -> str:
    """Write one row, and complete the job with it."""
    with transaction(payload["url"]) as connection:
        connection.execute(WRITE)
        context.complete_on(connection, {"attempt": context.attempt})
    return "what the handler returns is ignored"
