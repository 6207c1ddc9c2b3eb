"""Real servers for tests: each test process starts its own, once, when first asked, and leaves nothing behind.

``postgres``         the shared server; tests make databases on it but do not stop it
``new_database``     a function that makes a fresh database and answers with its URL; dropped after the test
``postgres_url``     one such URL
``private_postgres`` a server of the test's own, to stop, kill and pause
``clock``, ``store`` a clock that stands until it is moved, and a store in memory that goes by it
``pgbouncer``        transaction pooling before the shared server: ``pgbouncer.url(postgres_url)``
``snowflake``        the shared Snowflake emulator; each test makes databases on it, and it forgets statements after each
``snowflake_url``    one database of it, or of the account in DRUMBEAT_TEST_SNOWFLAKE_URL
``private_snowflake`` an emulator of the test's own, to stop, kill and pause
"""

import gc
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import process_state
import scheduling
import snowflake_account
import thorough  # noqa: F401  (how many examples there are)
from drumbeat.core.clock import ManualClock
from drumbeat.store.memory import MemoryStore
from servers.pgbouncer import PgBouncer, Unavailable
from servers.places import memory_folder
from servers.postgres import PostgresServer
from servers.redis import RedisServer, Unavailable as RedisUnavailable
from servers.snowflake import SnowflakeServer

pytest.register_assert_rewrite("drumbeat.spawn.contract", "drumbeat.store.contract")

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # hundreds of processes are started; none shall compile what another has
sys.dont_write_bytecode = False
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's background job hears no interrupt, nor would what tests start
    signal.signal(signal.SIGINT, signal.default_int_handler)

collect_ignore = (
    []
    if os.environ.get("DRUMBEAT_TEST_SNOWFLAKE")
    else [  # `make test-snowflake` runs these: the emulator takes 10 ms and more for a statement
        "bench/targets/test_snowflake.py",
        "store/test_snowflake.py",
        "store/test_snowflake_killed.py",
        "store/test_snowflake_own.py",
        "e2e/test_bench_snowflake.py",
        "e2e/test_bench_snowflake_store.py",
    ]
)
_QUICK = {"fsync": "off"}  #: a killed server loses nothing by it; only a machine that loses power does


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(process_state.Guard())
    gc.set_threshold(20_000, 20, 20)  # as often as usual would be a quarter of the time: among so many tests a look takes long


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    if scheduling.SEED:
        items.sort(key=scheduling.shuffled_place)
    yield  # pytest brings together the tests that share a fixture
    items.sort(key=scheduling.turn)


def pytest_sessionstart(session: pytest.Session) -> None:
    if scheduling.SEED and (reporter := session.config.pluginmanager.get_plugin("terminalreporter")):
        reporter.write_line(f"tests in random order: DRUMBEAT_ORDER_SEED={scheduling.SEED}")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> scheduling.ByPlace:
    return scheduling.ByPlace(config, log)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def store(clock: ManualClock) -> AsyncIterator[MemoryStore]:
    async with MemoryStore(clock) as opened:
        yield opened


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with PostgresServer(settings=_QUICK, folder=memory_folder()) as server:
        yield server


@pytest.fixture
def private_postgres() -> Iterator[PostgresServer]:
    with PostgresServer(settings=_QUICK, folder=memory_folder()) as server:
        yield server


@pytest.fixture
def new_database(postgres: PostgresServer) -> Iterator[Callable[[], str]]:
    made: list[str] = []

    def make() -> str:
        made.append(postgres.new_database())
        return made[-1]

    yield make
    for url in made:
        postgres.drop_database(url)


@pytest.fixture
def postgres_url(new_database: Callable[[], str]) -> str:
    return new_database()


@pytest.fixture(scope="session")
def pgbouncer(postgres: PostgresServer) -> Iterator[PgBouncer]:
    try:
        with PgBouncer(postgres) as bouncer:
            yield bouncer
    except Unavailable as exc:
        pytest.skip(f"PgBouncer is not available: {exc}")


@pytest.fixture(scope="session")
def _shared_snowflake() -> Iterator[SnowflakeServer]:
    pytest.importorskip("snowflake.connector", reason="needs the extra drumbeat[snowflake]")
    with SnowflakeServer() as server:
        yield server


@pytest.fixture(scope="session")
def redis() -> Iterator[RedisServer]:
    try:
        with RedisServer(folder=memory_folder()) as server:
            yield server
    except RedisUnavailable as exc:
        pytest.skip(f"Redis is not available: {exc}")


@pytest.fixture
def snowflake(_shared_snowflake: SnowflakeServer) -> Iterator[SnowflakeServer]:
    _shared_snowflake.forget()
    yield _shared_snowflake
    _shared_snowflake.forget()


@pytest.fixture
def snowflake_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A database of the emulator or, with DRUMBEAT_TEST_SNOWFLAKE_URL, a schema of a real account, for this test alone."""
    account = os.environ.get(snowflake_account.URL_VARIABLE)
    if account is None:
        yield request.getfixturevalue("snowflake").new_database()
        return
    with snowflake_account.new_schema(account) as url:
        yield url


@pytest.fixture
def private_snowflake() -> Iterator[SnowflakeServer]:
    pytest.importorskip("snowflake.connector", reason="needs the extra drumbeat[snowflake]")
    with SnowflakeServer() as server:
        yield server
