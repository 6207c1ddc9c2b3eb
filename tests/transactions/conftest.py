"""``in_postgres`` and ``in_sqlite``: a store and a table of the user in the same database, shared by the tests of a file."""

from collections.abc import AsyncIterator, Iterator

import pytest

from servers.postgres import PostgresServer
from transactions.place import Place, place_in_postgres, place_in_sqlite


@pytest.fixture(scope="module")
def database(postgres: PostgresServer) -> Iterator[str]:
    url = postgres.new_database()
    yield url
    postgres.drop_database(url)


@pytest.fixture(scope="module")
async def in_postgres(database: str) -> AsyncIterator[Place]:
    async with place_in_postgres(database) as place:
        yield place


@pytest.fixture(scope="module")
async def in_sqlite(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    async with place_in_sqlite(tmp_path_factory.mktemp("own")) as place:
        yield place


@pytest.fixture(params=["postgresql", "sqlite"])
def place(request: pytest.FixtureRequest, in_postgres: Place, in_sqlite: Place) -> Place:
    return in_postgres if request.param == "postgresql" else in_sqlite
