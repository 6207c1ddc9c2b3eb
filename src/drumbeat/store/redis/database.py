"""The connection to one Redis server: runs the Lua scripts and turns the server's errors into Drumbeat's errors."""

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from drumbeat.core.errors import (
    AlreadyExists,
    DrumbeatError,
    Fenced,
    IllegalMove,
    InvalidInput,
    InvalidSettings,
    MissingExtra,
    NotFound,
    Refused,
    StaleWrite,
    StoreUnavailable,
    WorkerGone,
)
from drumbeat.store.interface import StoreTraits
from drumbeat.store.redis.scripts import load_scripts
from drumbeat.store.redis.wire import PipelinedConnection, RedisReplyError, Word

Argument = Word | None

NOTHING = b"\0"  #: stands for None in a script's arguments
_REFUSALS: Mapping[bytes, type[DrumbeatError]] = {
    kind.__name__.encode(): kind
    for kind in (AlreadyExists, Fenced, IllegalMove, InvalidInput, NotFound, Refused, StaleWrite, WorkerGone)
}
_CREDENTIALS = (
    "NOAUTH",
    "WRONGPASS",
    "ERR AUTH",
    "AUTH",
    "ERR invalid password",
    "invalid password",
)  #: how Redis errors about a wrong user or password begin; the driver drops the prefix ERR


class RedisDatabase:
    """One Redis server, and all of its keys that begin with one prefix."""

    traits = StoreTraits(name="redis", shared=True, networked=True, keeps_runs=False)

    def __init__(
        self,
        url: str,
        password: str | None = None,
        *,
        prefix: str = "drumbeat",
        command_timeout: timedelta = timedelta(seconds=10),
        connect_timeout: timedelta = timedelta(seconds=5),
    ) -> None:
        self._url = url
        self._password = password
        self._name = prefix
        self._prefix = f"{prefix}:".encode()
        self._command_timeout = command_timeout.total_seconds()
        self._connect_timeout = connect_timeout.total_seconds()
        self._open = False
        self._connecting = asyncio.Lock()
        self._wire: PipelinedConnection | None = None
        self._waiting: list[PipelinedConnection] = []  #: idle connections for blocking commands
        self.scripts = load_scripts()

    @property
    def location(self) -> str:
        parts = urlsplit(self._url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2] or 'localhost'}{parts.path} (prefix {self._name})"

    def key(self, name: str) -> bytes:
        """Return the full name of a key: the prefix, then ``name``."""
        return self._prefix + name.encode()

    async def open(self) -> None:
        self._open = True
        try:
            await self.run("now")
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        self._open = False
        wires, self._wire, self._waiting = [*self._waiting, *([self._wire] if self._wire else [])], None, []
        for wire in wires:
            wire.close()

    async def run(self, name: str, *arguments: Argument) -> Any:
        """Run a Lua script and return its answer. Raises the Drumbeat error that the script reports."""
        script = self.scripts[name]
        words = [NOTHING if argument is None else argument for argument in arguments]
        try:
            answer = await self._ask([b"EVALSHA", script.digest, b"1", self._prefix, *words])
        except RedisReplyError as exc:
            if not str(exc).startswith("NOSCRIPT"):
                raise self._translated(exc) from exc
            answer = await self.command(b"EVAL", script.text, b"1", self._prefix, *words)
        if answer[0] == 1:
            return answer[1] if len(answer) > 1 else None
        raise _REFUSALS[answer[1]](answer[2].decode())

    async def command(self, *words: Word) -> Any:
        """Run one Redis command and return the server's answer."""
        try:
            return await self._ask(words)
        except RedisReplyError as exc:
            raise self._translated(exc) from exc

    async def wait_for_news(self, pool_id: str, after: bytes, seconds: float) -> bool:
        """Wait for an entry newer than ``after`` in the pool's stream ``news`` (of new jobs). Returns False on timeout."""
        key = self.key(f"{{{_escaped(pool_id)}}}:news")
        if seconds <= 0:
            entries = await self.command(b"XREAD", b"STREAMS", key, after)
        else:
            entries = await self._block([b"XREAD", b"BLOCK", max(1, int(seconds * 1000)), b"STREAMS", key, after], seconds)
        return entries is not None

    async def describe(self) -> str:
        info = await self._info()
        persistence = "appendonly" if info.get("aof_enabled") == "1" else "not appendonly"
        return f"Redis {info.get('redis_version', 'of unknown version')}, {persistence}"

    async def examine(self) -> Sequence[str]:
        info = await self._info()
        problems = []
        if info.get("role", "master") != "master":
            problems.append("this server is a read-only replica; point the store at the primary")
        if info.get("maxmemory_policy", "noeviction") != "noeviction" and info.get("maxmemory", "0") != "0":
            problems.append(f"maxmemory-policy is {info['maxmemory_policy']}, which deletes rows; set it to noeviction")
        if info.get("cluster_enabled") == "1":
            problems.append("this is a Redis Cluster, where a script can use only one hash slot; use a single primary")
        return problems

    async def _info(self) -> dict[str, str]:
        text = (await self.command(b"INFO", b"everything")).decode()
        return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)

    async def _ask(self, words: Sequence[Word]) -> Any:
        wire = self._wire
        if wire is None or not wire.is_open:
            wire = await self._connected()
        return await self._answer(wire, words, self._command_timeout)

    async def _answer(self, wire: PipelinedConnection, words: Sequence[Word], seconds: float) -> Any:
        try:
            return await wire.ask(words, seconds)
        except TimeoutError as exc:
            raise self._unreachable(f"the server did not answer within {seconds:g} s") from exc
        except OSError as exc:
            raise self._unreachable(str(exc)) from exc
        except UnicodeEncodeError as exc:
            raise InvalidInput(f"expected text that can be encoded as UTF-8 for Redis, got: {exc}") from exc

    async def _block(self, words: Sequence[Word], seconds: float) -> Any:
        """Run a blocking command on a separate connection, so that other commands do not wait. The connection is reused."""
        self._expect_open()
        wire = self._idle_wire() or await self._connect()
        done = False
        try:
            answer = await self._answer(wire, words, seconds + self._command_timeout)
            done = True
            return answer
        except RedisReplyError as exc:
            raise self._translated(exc) from exc
        finally:
            if done and self._open and wire.is_open:
                self._waiting.append(wire)
            else:
                wire.close()

    def _idle_wire(self) -> PipelinedConnection | None:
        """Take an idle connection that the server has not closed meanwhile; None if there is none."""
        while self._waiting:
            wire = self._waiting.pop()
            if wire.is_open:
                return wire
        return None

    async def _connected(self) -> PipelinedConnection:
        self._expect_open()
        async with self._connecting:
            if self._wire is None or not self._wire.is_open:
                self._wire = await self._connect()
            return self._wire

    def _expect_open(self) -> None:
        if not self._open:
            raise StoreUnavailable("this store is closed; open it before use")

    async def _connect(self) -> PipelinedConnection:
        """Open a connection with the Redis driver, which handles address, TLS, login and database number."""
        driver = _driver()
        password = {} if self._password is None else {"password": self._password}
        limits = {"socket_timeout": self._connect_timeout, "socket_connect_timeout": self._connect_timeout, "protocol": 2}
        connection = driver.ConnectionPool.from_url(self._url, retry=_no_retry(), **limits, **password).make_connection()
        try:
            await connection.connect()
        except (driver.RedisError, OSError, TimeoutError, ssl.SSLError) as exc:
            raise self._translated(exc) from None  # the server's error may contain the password
        return _take_over(connection)

    def _translated(self, exc: Exception) -> DrumbeatError:
        text = str(exc) or type(exc).__name__
        if text.startswith(_CREDENTIALS) or isinstance(exc, _driver().AuthenticationError):
            return InvalidSettings(f"Redis at {self.location} refused the user or password; check the store's URL")
        if text.startswith("NOPERM"):
            return InvalidSettings(
                f"Redis at {self.location} refused: {text}; grant it, or use another user in the store's URL"
            )
        if text.startswith("READONLY"):
            return StoreUnavailable(f"Redis at {self.location} is a read-only replica; point the store at the primary")
        if isinstance(exc, RedisReplyError):
            return StoreUnavailable(f"Redis at {self.location}: {text}")
        return self._unreachable(text)

    def _unreachable(self, text: str) -> StoreUnavailable:
        return StoreUnavailable(f"Redis at {self.location}: {text}; is it running, and is the store's URL right?")


def _take_over(connection: Any) -> PipelinedConnection:
    """Move the driver's socket to a PipelinedConnection, so that the driver no longer uses or closes it."""
    writer, connection._reader, connection._writer = connection._writer, None, None  # noqa: SLF001
    return PipelinedConnection(writer.transport, held=writer)


def _escaped(pool_id: str) -> str:
    """Return a pool's id as it appears in keys: ``%``, ``{`` and ``}`` are escaped, as in the scripts."""
    return pool_id.translate({ord(mark): f"%{ord(mark):02X}" for mark in "%{}"})


def _no_retry() -> Any:
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff

    return Retry(NoBackoff(), 0)


@cache
def _driver() -> Any:
    try:
        import redis.asyncio
    except ImportError as exc:
        raise MissingExtra("the Redis store", "redis") from exc
    return redis.asyncio
