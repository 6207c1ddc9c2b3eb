"""A fast path for one frequent statement: asyncpg prepares it on a dedicated connection, then it is sent without asyncpg.

A push of one job takes more time in asyncpg than on the network. So the statement is sent as one message, and only
the needed part of the reply is parsed: the first column of the first row, as a number.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from drumbeat.core.errors import DrumbeatError, InvalidInput
from drumbeat.store.sql.database import Rows, Values

log = logging.getLogger(__name__)

OFTEN = 32  #: after this many uses a statement gets a dedicated connection

_EXECUTE_AND_SYNC = b"E\0\0\0\x09\0\0\0\0\0S\0\0\0\x04"
_ROW, _ERROR, _READY = b"DEZ"
_NULL = b"\xff\xff\xff\xff"
_ONE_ROW, _DONE = b"2\0\0\0\x04D", b"Z\0\0\0\x05I"  #: first and last bytes of a reply with one row


class StatementConnection(asyncio.Protocol):
    """A connection that runs one prepared statement, one call at a time."""

    def __init__(self, connection: Any, statement: Any, error: Callable[[dict[str, str]], Exception], within: float) -> None:
        """Take over the driver's ``connection``. ``error`` makes the driver's exception from the fields of an error message.
        A call without a reply within ``within`` seconds raises TimeoutError and closes the connection."""
        self._driver = connection, statement
        self._error = error
        self._within = within
        self._head = b"\0" + statement.get_name().encode() + b"\0\0\0" + _short(len(statement.get_parameters()))
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[int | None] | None = None
        self._answer: int | Exception | None = None
        self._deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._rest = b""
        self._transport: asyncio.Transport = connection._transport  # noqa: SLF001
        self._transport.set_protocol(self)

    @property
    def is_free(self) -> bool:
        return self._waiter is None and not self._transport.is_closing()

    @property
    def is_lost(self) -> bool:
        return self._transport.is_closing()

    def ask(self, values: Iterable[str | int | None]) -> asyncio.Future[int | None]:
        """Run the statement; call only while ``is_free``. The future gets the first column of the first row, or None."""
        parts = [self._head]
        for value in values:
            text = None if value is None else str(value).encode()
            parts += (_NULL,) if text is None else (len(text).to_bytes(4, "big"), text)
        body = b"".join(parts)
        self._waiter = waiter = self._loop.create_future()
        self._transport.write(b"B%b%b\0\0%b" % ((len(body) + 6).to_bytes(4, "big"), body, _EXECUTE_AND_SYNC))
        self._deadline = self._loop.time() + self._within
        if self._timer is None:
            self._timer = self._loop.call_at(self._deadline, self._check_deadline)
        return waiter

    def close(self) -> None:
        self._driver[0].terminate()
        self.connection_lost(None)

    def data_received(self, data: bytes) -> None:
        if data.startswith(_ONE_ROW) and not self._rest:
            row = 6 + int.from_bytes(data[6:10], "big")
            if data[row : row + 1] == b"C" and data[row + 1 + int.from_bytes(data[row + 1 : row + 5], "big") :] == _DONE:
                return self._finish(_first_number(data, 10))
        return self._read_messages(data)

    def _read_messages(self, data: bytes) -> None:
        text, at = self._rest + data if self._rest else data, 0
        while len(text) - at > 4:
            end = at + 1 + int.from_bytes(text[at + 1 : at + 5], "big")
            if end > len(text):
                break
            self._read_message(text[at], text, at + 5, end)
            at = end
        self._rest = text[at:]

    def _read_message(self, kind: int, text: bytes, at: int, end: int) -> None:
        if kind == _ROW:
            self._answer = _first_number(text, at)
        elif kind == _ERROR:
            fields = text[at:end].decode(errors="replace").split("\0")
            self._answer = self._error({field[0]: field[1:] for field in fields if field})
        elif kind == _READY:
            answer, self._answer = self._answer, None
            self._finish(answer)

    def _finish(self, answer: int | Exception | None) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is None or waiter.done():
            return
        if isinstance(answer, Exception):
            waiter.set_exception(answer)
        else:
            waiter.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._driver[0].terminate()
        answer = self._answer if isinstance(self._answer, Exception) else None
        self._finish(answer or ConnectionError(f"the connection was lost{f': {exc}' if exc else ''}"))

    def _check_deadline(self) -> None:
        """Close the connection if the current call is past its deadline, else check again at the deadline."""
        self._timer = None
        if self._waiter is None:
            return
        if self._loop.time() < self._deadline:
            self._timer = self._loop.call_at(self._deadline, self._check_deadline)
        else:
            self._finish(TimeoutError())
            self.close()


def _first_number(text: bytes, at: int) -> int:
    """Return the first column of a row message as a number. The body of the message starts at ``at``."""
    return int(text[at + 6 : at + 6 + int.from_bytes(text[at + 2 : at + 6], "big")])


def _short(number: int) -> bytes:
    return number.to_bytes(2, "big")


class PushDatabase(Protocol):
    """The methods of PostgresDatabase that PushFastpath calls."""

    async def write(self, query: str, values: Values) -> Rows: ...

    async def statement_connection(self, query: str) -> tuple[StatementConnection, tuple[str, ...]] | None:
        """Open a connection for one query. Returns it and the query's parameter names; None behind a connection pooler."""
        ...

    def translated(self, exc: Exception) -> DrumbeatError: ...


class PushFastpath:
    """Runs one query that is used often (a push) on its own connection, or on a pooled connection while its own is busy."""

    def __init__(self, database: PushDatabase, query: str, failures: Callable[[], tuple[type[Exception], ...]]) -> None:
        self._database = database
        self._query = query
        self._failures = failures
        self._connection: StatementConnection | None = None
        self._order: tuple[str, ...] = ()
        self._used = 0

    async def number(self, values: Values) -> int | None:
        """Run the query and return the number it selects (first column of the first row); None if it selects no row."""
        connection = self._connection
        if connection is None or not connection.is_free:
            return await self._write(values)
        try:
            return await connection.ask(map(values.__getitem__, self._order))
        except UnicodeEncodeError as exc:
            raise InvalidInput(f"PostgreSQL cannot store this value: {exc}") from exc
        except self._failures() as exc:
            raise self._database.translated(exc) from exc

    async def _write(self, values: Values) -> int | None:
        if self._connection is not None and self._connection.is_lost:
            self._connection, self._used = None, 0
        self._used += 1
        if self._used == OFTEN:
            await self._open()
        rows = await self._database.write(self._query, values)
        return rows[0][0] if rows else None

    async def _open(self) -> None:
        try:
            opened = await self._database.statement_connection(self._query)
        except DrumbeatError as exc:
            log.debug("could not open a dedicated connection for query %s: %s; using shared connections", self._query, exc)
            return
        if opened is not None:
            self._connection, self._order = opened

    def close(self) -> None:
        connection, self._connection, self._used = self._connection, None, 0
        if connection is not None:
            connection.close()
