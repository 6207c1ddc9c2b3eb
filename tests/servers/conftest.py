"""Clients of the shared Snowflake emulator, each test with a database of its own."""

from collections.abc import Iterator

import pytest

from servers.snowflake import SnowflakeServer
from servers.snowflake_client import Client


@pytest.fixture
def database(snowflake: SnowflakeServer) -> str:
    return snowflake.new_database().split("/")[3]


@pytest.fixture
def client(snowflake: SnowflakeServer, database: str) -> Iterator[Client]:
    made = Client(snowflake, database)
    yield made
    made.connection.close()


@pytest.fixture
def other(snowflake: SnowflakeServer, database: str, client: Client) -> Iterator[Client]:
    made = Client(snowflake, database)
    yield made
    made.connection.close()
