"""An empty database, folder or Redis for each run of a queue, on servers that run as long as the benchmark."""

import shutil
import socket
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from kit.pool_contenders import Contender
from servers.postgres import PostgresServer
from servers.redis import RedisServer, Unavailable

APPEND_ONLY = {"appendonly": "yes", "appendfsync": "everysec"}  #: for all queues on Redis


class Places:
    """The running servers, and the URLs of stores on them."""

    def __init__(self, postgres: PostgresServer | None, redis: RedisServer | None, folder: Path) -> None:
        self._postgres = postgres
        self._redis = redis
        self._folder = folder

    @property
    def postgres(self) -> PostgresServer:
        if self._postgres is None:
            raise Unavailable("expected a PostgreSQL server, but none was started")
        return self._postgres

    @contextmanager
    def empty(self, contender: Contender) -> Iterator[str]:
        """Yield the URL of an empty store for one run; the store is deleted afterwards."""
        if contender.store == "postgresql":
            url = self.postgres.new_database()
            try:
                yield url
            finally:
                self.postgres.drop_database(url)
        elif contender.store == "sqlite":
            with tempfile.TemporaryDirectory(dir=self._folder) as folder:
                yield self._sqlite(contender, folder)
        else:
            self._flush()
            yield self._redis_url(0)

    @contextmanager
    def apart(self, contender: Contender, number: int) -> Iterator[str]:
        """Yield the URL of an empty store for one run, while other stores keep their data."""
        if contender.store == "redis":
            url = self._redis_url(number)
            yield url
            self._flush(number)
            return
        with self.empty(contender) as url:
            yield url

    def lasting(self, contender: Contender, number: int) -> str:
        """Return the URL of a store for several runs, which keeps its data."""
        if contender.store == "postgresql":
            return self.postgres.new_database()
        if contender.store == "sqlite":
            return self._sqlite(contender, tempfile.mkdtemp(dir=self._folder))
        return self._redis_url(number)

    def _sqlite(self, contender: Contender, folder: str) -> str:
        return f"sqlite:///{folder}/jobs.db?synchronous=FULL" if contender.is_ours else folder

    def _redis_url(self, number: int) -> str:
        if self._redis is None:
            raise Unavailable("expected a Redis server, but none was started")
        return self._redis.url(database=number)

    def _flush(self, number: int | None = None) -> None:
        """Delete one Redis database, or all of them."""
        words = b"FLUSHALL\r\n" if number is None else b"SELECT %d\r\nFLUSHDB\r\n" % number
        if self._redis is not None:
            with socket.create_connection(("127.0.0.1", self._redis.port), timeout=60) as connection:
                connection.sendall(words + b"QUIT\r\n")
                while connection.recv(64):
                    continue


@contextmanager
def places(stores: Sequence[str]) -> Iterator[Places]:
    """Start the servers that these stores need."""
    with ExitStack() as stack:
        postgres = stack.enter_context(PostgresServer()) if "postgresql" in stores else None
        redis = stack.enter_context(RedisServer(settings=APPEND_ONLY)) if "redis" in stores else None
        folder = Path(tempfile.mkdtemp(prefix="drumbeat-bench-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        yield Places(postgres, redis, folder)
