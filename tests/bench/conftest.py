"""Databases under test: ``mariadb`` is a real server, shared; ``mariadb_url`` a fresh database on it."""

from collections.abc import Iterator

import pytest

from servers.mariadb import MariaDbServer, Unavailable
from servers.places import memory_folder

pytest.register_assert_rewrite("drumbeat.bench.targets.contract")


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDbServer]:
    try:
        with MariaDbServer(folder=memory_folder()) as server:
            yield server
    except Unavailable as exc:
        pytest.skip(f"MariaDB is not available: {exc}")


@pytest.fixture
def mariadb_url(mariadb: MariaDbServer) -> Iterator[str]:
    url = mariadb.new_database()
    yield url
    mariadb.drop_database(url)
